"""Items' own templates, and what items give to templates that do not use it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.preflight.model_preflight import ModelPreflight
from batch_pipelines.preflight.settings import PreflightSettings
from tests.unit.preflight.model_files import TEMPLATE, chat, write_model

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SETTINGS = PreflightSettings(context=100, compile_sec=1.0, memory_bytes=2**28, auto_tools=True)


@pytest.fixture
def preflight(model: Path) -> Iterator[ModelPreflight]:
    with ModelPreflight(model, SETTINGS) as preflight:
        yield preflight


def check(preflight: ModelPreflight, item: Any) -> str | None:
    error = preflight.check("chat", item, len(orjson.dumps(item)))
    return error.message if error is not None else None


@pytest.mark.parametrize("template", [TEMPLATE, "{{ messages[0]['content'] }}", "no variables"])
def test_a_template_that_renders(preflight: ModelPreflight, template: str) -> None:
    assert check(preflight, chat(chat_template=template)) is None


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% if %}", "chat_template: does not compile: "),
        ("{{ raise_exception('no') }}", "chat_template: fails: no"),
        ("{{ ''.__class__.__mro__ }}", "chat_template: fails: access to attribute '__class__'"),
        (ENDLESS, "chat_template: cannot be rendered and made tokens: it took more than 1 s"),
        ("{{ 'a' * 10**10 }}", "chat_template: fails: MemoryError"),
    ],
    ids=["syntax", "raises", "escapes", "endless", "memory"],
)
def test_a_template_that_does_not(preflight: ModelPreflight, template: str, said: str) -> None:
    message = check(preflight, chat(chat_template=template))
    assert message is not None
    assert message.startswith(said)
    assert check(preflight, chat(chat_template=TEMPLATE)) is None


def test_a_template_that_makes_too_long_a_prompt(preflight: ModelPreflight) -> None:
    item = chat("hi" + " " * 300, chat_template="{{ ' word' * 200 }}")
    message = check(preflight, item)
    assert message is not None
    assert message.startswith("messages: have at least 200 tokens")


def test_an_items_template_makes_chats_possible_on_a_model_without(tmp_path: Path) -> None:
    with ModelPreflight(write_model(tmp_path, template=None), SETTINGS) as preflight:
        assert check(preflight, chat(chat_template=TEMPLATE)) is None
        assert check(preflight, chat()) is not None


def test_a_named_template_of_the_model(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ raise_exception('by name') }}")
    with ModelPreflight(folder, SETTINGS) as preflight:
        assert check(preflight, chat(chat_template="rag")) == "chat_template: fails: by name"


TOOL = {"type": "function", "function": {"name": "f"}}


def test_what_the_models_template_does_not_use_is_noted(preflight: ModelPreflight) -> None:
    for item in (
        chat(reasoning_effort="low"),
        chat(reasoning_effort="high"),
        chat(documents=[{"text": "a"}]),
        chat(chat_template_kwargs={"enable_thinking": False, "messages_": 1}),
        chat(tools=[TOOL], tool_choice="none"),
        chat(functions=[{"name": "f"}]),
    ):
        assert check(preflight, item) is None
    does_not = "the model's chat template does not use it"
    assert preflight.notes == {
        f"reasoning_effort: {does_not}": 2,
        f"documents: {does_not}": 1,
        "chat_template_kwargs: the model's chat template does not use all of them": 1,
        f"tools: {does_not}": 1,
        f"functions: {does_not}": 1,
    }


def test_what_the_models_template_uses_is_not_noted(tmp_path: Path) -> None:
    template = TEMPLATE + "{{ tools }}{{ documents }}{% if enable_thinking %}{% endif %}{{ extra }}"
    settings = PreflightSettings(auto_tools=True)
    with ModelPreflight(write_model(tmp_path, template=template), settings) as preflight:
        item = chat(
            tools=[TOOL],
            documents=[{"text": "a"}],
            reasoning_effort="low",
            chat_template_kwargs={"extra": 1, "enable_thinking": True},
        )
        assert check(preflight, item) is None
        assert preflight.notes == {}


def test_the_items_template_is_the_one_that_counts(preflight: ModelPreflight) -> None:
    own = TEMPLATE + "{{ extra }}"
    assert check(preflight, chat(chat_template=own, chat_template_kwargs={"extra": 1, "more": 1})) is None
    assert preflight.notes == {"chat_template_kwargs: the item's chat template does not use all of them": 1}


def test_notes_do_not_grow_with_what_items_say(preflight: ModelPreflight) -> None:
    for n in range(200):
        assert check(preflight, chat(chat_template_kwargs={f"name_{n}": n})) is None
    assert len(preflight.notes) == 1


def test_a_template_that_renders_to_nothing_is_refused(preflight: ModelPreflight) -> None:
    error = check(preflight, chat(chat_template="{{ '' }}"))
    assert error == "chat_template: renders to nothing"


@pytest.mark.parametrize("name", ["messages", "conversation", "tokenizer", "model_config"])
def test_names_that_the_engine_passes_itself(preflight: ModelPreflight, name: str) -> None:
    message = check(preflight, chat(chat_template_kwargs={name: 1}))
    assert message == f"chat_template_kwargs.{name}: is a name that the engine itself uses; rename it"


def test_a_template_among_the_variables_is_not_taken(preflight: ModelPreflight) -> None:
    message = check(preflight, chat(chat_template_kwargs={"chat_template": TEMPLATE}))
    assert message == "chat_template_kwargs.chat_template: is not taken; give it as `chat_template`"


def test_tools_reach_the_check_of_tools(model: Path) -> None:
    with ModelPreflight(model, PreflightSettings()) as preflight:
        message = check(preflight, chat(tools=[TOOL]))
    assert message is not None
    assert message.startswith("tool_choice: is unset, which means auto, and the engine has no parser")


def test_where_items_bring_their_templates_one_without_is_an_error_of_its_own(tmp_path: Path) -> None:
    with ModelPreflight(write_model(tmp_path, template=None), PreflightSettings()) as preflight:
        assert preflight.check("chat", chat(chat_template="{{ messages[0].content }}"), 60) is None
        error = preflight.check("chat", chat(), 30)
    assert error is not None
    assert error.param == "messages"
