"""What passes without a helper: items that use nothing special, and checks that need only look-ups."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight import model_preflight
from batch_pipelines.preflight.model_preflight import ModelPreflight
from batch_pipelines.preflight.protocol import ModelUnfit, NoPreflight, Preflight
from batch_pipelines.preflight.settings import PreflightSettings
from tests.unit.preflight.model_files import VOCABULARY, chat, write_model

SETTINGS = PreflightSettings(context=100, vocab_size=VOCABULARY)


@pytest.fixture(autouse=True)
def _no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoHelper:
        def __init__(self, **_: Any) -> None: ...

        def ask(self, op: str, *_: Any, **__: Any) -> None:
            raise AssertionError(f"the helper was asked for {op}")

        def close(self) -> None: ...

    monkeypatch.setattr(model_preflight, "Helper", NoHelper)


def check(
    folder: Path, item: Any, settings: PreflightSettings = SETTINGS, kind: ItemKind | None = None
) -> Any:
    found: ItemKind = kind or ("chat" if "messages" in item else "completion")
    preflight: Preflight
    with ModelPreflight(folder, settings) as preflight:
        return preflight.check(found, item, len(orjson.dumps(item)))


def refused(error: ItemError | None) -> str:
    assert error is not None
    assert (error.type, error.code) == ("BadRequestError", 400)
    assert error.param is not None
    assert error.message.startswith(f"{error.param}: ")
    return error.message


PLAIN: dict[str, Any] = {"temperature": 0.5, "max_tokens": 16, "custom_id": "a", "seed": 1}


@pytest.mark.parametrize(
    "item",
    [
        {"prompt": "once", **PLAIN},
        {"prompt": ["once", "twice"], **PLAIN},
        {"prompt": [1, 2, 3], **PLAIN},
        {"prompt": [[1], [2, 3]], **PLAIN},
        chat(**PLAIN),
        chat(max_completion_tokens=5, max_tokens=5000),
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]},
    ],
    ids=str,
)
def test_plain_items_pass(model: Path, item: Any) -> None:
    assert check(model, item) is None


def test_a_v1_prompt_passes_and_an_empty_one_does_not(model: Path) -> None:
    assert check(model, "once", kind="v1") is None
    assert refused(check(model, "", kind="v1")) == "prompt: is empty"


@pytest.mark.parametrize("prompt", [None, ""])
def test_a_prompt_with_nothing_in_it(model: Path, prompt: Any) -> None:
    assert refused(check(model, {"prompt": prompt})) == "prompt: is empty"


def test_an_empty_one_among_prompts_that_get_no_token_by_themselves(model: Path) -> None:
    item = {"prompt": ["a", ""], "add_special_tokens": False}
    assert refused(check(model, item)).startswith("prompt[1]: is empty")


def test_more_prompts_than_the_engine_takes_at_once(model: Path) -> None:
    assert check(model, {"prompt": ["a"] * 1024}, PreflightSettings()) is None
    message = refused(check(model, {"prompt": ["a"] * 1025}, PreflightSettings()))
    assert message == "prompt: has 1,025 prompts; the engine takes 1,024 at once"


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"prompt": [5, 300]}, "prompt", "300; the model has 300 tokens, from 0 to 299"),
        ({"prompt": [[1], [5, 70_000]]}, "prompt[1]", "70000"),
        ({"prompt": "a", "stop_token_ids": [7, 300]}, "stop_token_ids", "300"),
        ({"prompt": "a", "stop_token_ids": [-1]}, "stop_token_ids", "-1"),
        ({"prompt": "a", "logit_bias": {"5": 1.0, "300": 1.0}}, "logit_bias", "300"),
        ({"prompt": "a", "logit_bias": {"-1": 1.0}}, "logit_bias", "-1"),
        ({"prompt": "a", "logit_bias": {"cat": 1.0}}, "logit_bias", "'cat', which is no token id"),
        ({"prompt": "a", "logit_bias": {"1.0": 1.0}}, "logit_bias", "'1.0'"),
        ({"prompt": "a", "logit_bias": {"9" * 5000: 1.0}}, "logit_bias", "no token id"),
    ],
)
def test_token_ids_outside_the_vocabulary(model: Path, fields: Any, param: str, said: str) -> None:
    message = refused(check(model, fields))
    assert message.startswith(f"{param}: ")
    assert said in message


def test_token_ids_within_the_vocabulary_or_of_a_model_whose_vocabulary_is_not_known(model: Path) -> None:
    item = {"prompt": [299, 0], "logit_bias": {"299": 1.0, " 7 ": 1.0}, "stop_token_ids": [0, 299]}
    assert check(model, item) is None
    beyond = {"prompt": [70_000], "logit_bias": {"70000": 1.0}, "stop_token_ids": [70_000]}
    assert check(model, beyond, PreflightSettings()) is None


def test_lists_of_token_ids_are_counted_exactly(model: Path) -> None:
    assert check(model, {"prompt": [5] * 99}) is None
    assert "prompt: has 100 tokens" in refused(check(model, {"prompt": [5] * 100}))
    message = refused(check(model, {"prompt": [[5], [5] * 101]}))
    assert message.startswith("prompt[1]: has at least 101 tokens; prompt and answer together may have 100")


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"prompt": "a", "max_tokens": 101}, "max_tokens"),
        (chat(max_tokens=101), "max_tokens"),
        (chat(max_completion_tokens=101), "max_completion_tokens"),
        (chat(max_completion_tokens=101, max_tokens=5), "max_completion_tokens"),
    ],
    ids=str,
)
def test_a_token_limit_beyond_the_context(model: Path, item: Any, field: str) -> None:
    assert refused(check(model, item)).startswith(f"{field}: is 101; prompt and answer together may have 100")


@pytest.mark.parametrize(
    "item", [{"prompt": "a", "max_tokens": 100}, {"prompt": "a", "max_tokens": None}, chat(max_tokens=100)]
)
def test_a_token_limit_of_the_whole_context_is_lowered_by_the_engine(model: Path, item: Any) -> None:
    assert check(model, item) is None


def test_a_v1_header_is_checked_once_for_all_prompts(model: Path) -> None:
    with ModelPreflight(model, SETTINGS) as preflight:
        assert preflight.check_v1_header({"max_new_tokens": 100}) is None
        assert refused(preflight.check_v1_header({"max_new_tokens": 101})).startswith(
            "max_new_tokens: is 101;"
        )


def test_an_answer_that_may_be_cut_short_is_noted(model: Path) -> None:
    with ModelPreflight(model, SETTINGS) as preflight:
        for limit in (1, 2, 50):
            assert preflight.check("completion", {"prompt": [5] * 99, "max_tokens": limit}, 500) is None
        assert preflight.notes == {"max_tokens: more than the context has left; the answer may end before": 2}


def test_without_a_tokenizer_only_token_ids_can_be_sent(model: Path) -> None:
    settings = PreflightSettings(skip_tokenizer=True)
    assert check(model, {"prompt": [5]}, settings) is None
    for item in (chat(), {"prompt": "a"}, {"prompt": ["a"]}):
        assert "skip_tokenizer_init" in refused(check(model, item, settings))


def test_a_chat_on_a_model_without_a_template(tmp_path: Path) -> None:
    folder = write_model(tmp_path, template=None)
    with pytest.raises(ModelUnfit, match="the model has no chat template"):
        check(folder, chat())
    assert check(folder, {"prompt": "a"}) is None
    assert check(folder, chat(), PreflightSettings(chat_template="{{ messages[0].content }}")) is None


@pytest.mark.parametrize("architecture", ["DeepseekV32ForCausalLM", "GptOssForCausalLM"])
def test_a_chat_on_a_model_that_the_engine_renders_by_itself(tmp_path: Path, architecture: str) -> None:
    folder = write_model(tmp_path, template=None, architectures=[architecture])
    assert check(folder, chat("x" * 5000)) is None


def test_an_engine_without_a_model_takes_everything() -> None:
    preflight: Preflight
    with NoPreflight() as preflight:
        assert preflight.check("completion", {"prompt": "", "max_tokens": 10**9}, 10) is None
        assert preflight.check_v1_header({"max_new_tokens": 10**9}) is None
        assert preflight.structured_backend is None
        assert preflight.notes == {}
