"""What can be said of a job before its items are looked at."""

from pathlib import Path

from batch_pipelines.api.items import ItemKind
from batch_pipelines.preflight.job import JobFindings, check_job
from batch_pipelines.preflight.settings import PreflightSettings
from tests.unit.preflight.model_files import write_model

SETTINGS = PreflightSettings(compile_sec=1.0)
NOTHING = JobFindings([], [])


def check(folder: Path, kind: ItemKind | None, settings: PreflightSettings = SETTINGS) -> JobFindings:
    return check_job(folder, settings, kind=kind)


def test_a_model_that_has_all_it_takes(model: Path) -> None:
    for kind in ("chat", "completion", "v1", None):
        assert check(model, kind) == NOTHING


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    (problem,) = check(folder, "completion").problems
    assert problem.startswith("model: m has no tokenizer")
    assert check(folder, "completion", PreflightSettings(skip_tokenizer=True)) == NOTHING


def test_texts_on_an_engine_without_a_tokenizer(model: Path) -> None:
    settings = PreflightSettings(skip_tokenizer=True)
    for kind in ("chat", "v1"):
        (problem,) = check(model, kind, settings).problems
        assert problem.startswith("model_config.skip_tokenizer_init: ")


def test_chats_on_a_model_without_a_template(tmp_path: Path) -> None:
    folder = write_model(tmp_path, template=None)
    findings = check(folder, "chat")
    assert findings.warnings == []
    assert findings.problems[0].startswith("chats: the model has no chat template; ")
    assert check(folder, None) == JobFindings([], findings.problems)
    assert check(folder, "completion") == NOTHING
    assert check(folder, "chat", PreflightSettings(chat_template="{{ messages }}")) == NOTHING


def test_a_template_that_does_not_compile(tmp_path: Path) -> None:
    folder = write_model(tmp_path, template="{% if %}")
    (problem,) = check(folder, "chat").problems
    assert problem.startswith("the model's chat template does not compile: ")
    settings = PreflightSettings(chat_template="{% endfor %}")
    (problem,) = check(folder, "chat", settings).problems
    assert problem.startswith("model_config.chat_template does not compile: ")


def test_a_template_that_does_not_take_a_plain_chat_is_a_warning(tmp_path: Path) -> None:
    folder = write_model(tmp_path, template="{{ raise_exception('system goes first') }}")
    findings = check(folder, "chat")
    assert findings.problems == []
    assert findings.warnings == [
        "the model's chat template does not take a chat of one message: it fails: system goes first"
    ]


def test_a_template_that_never_ends(tmp_path: Path) -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (problem,) = check(write_model(tmp_path, template=loop), "chat").problems
    assert problem == "the model's chat template cannot be rendered: it took more than 1 s"
