"""An engine's error names the item's field. The messages are vLLM 0.32's own."""

from typing import Any

import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engine_errors import engine_error

CHAT: dict[str, Any] = {"messages": []}
COMPLETION: dict[str, Any] = {"prompt": "a"}
LONG = (
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input "
    "tokens, which exceeds this limit even without any output tokens. (parameter=input_tokens, value=2049)"
)
BLOB = (
    "2 validation errors:\n  {'type': 'string_type', 'loc': 'body.messages.0.CustomMessageParam.content', "
    "'msg': 'Input should be a valid string', 'input': '1'}\n  {'type': 'x', 'loc': 'body.a', 'msg': 'b', "
    "'input': '1'}"
)


@pytest.mark.parametrize(
    ("kind", "item", "message", "param", "field"),
    [
        ("completion", COMPLETION, LONG, "input_tokens", "prompt"),
        ("chat", CHAT, LONG, "input_tokens", "messages"),
        ("completion", COMPLETION, "top_p must be in (0, 1], got 0.0.", "top_p", "top_p"),
        (
            "v1",
            "a",
            "max_tokens=3000 cannot be greater than max_model_len=2048.",
            "max_tokens",
            "max_new_tokens",
        ),
        ("completion", COMPLETION, "n must be 1 when using greedy sampling, got 2.", None, "n"),
        ("completion", COMPLETION, "stop cannot contain an empty string.", None, "stop"),
        ("v1", "a", "stop cannot contain an empty string.", None, "stop_sequences"),
        (
            "completion",
            COMPLETION,
            "min_tokens must be less than or equal to max_tokens=3",
            None,
            "min_tokens",
        ),
        ("completion", COMPLETION, "Token id 99999999 is out of vocabulary", None, "prompt"),
        ("chat", CHAT, "SmolLM2 is not a multimodal model", None, "messages"),
        ("chat", CHAT, "Cannot apply chat template to an empty conversation.", None, "messages"),
        (
            "completion",
            {**COMPLETION, "guided_json": {}},
            "Grammar error: Invalid type: nope",
            None,
            "guided_json",
        ),
        (
            "chat",
            {**CHAT, "response_format": {"type": "json_object"}},
            "The provided JSON schema contains features not supported by xgrammar.",
            None,
            "response_format",
        ),
        ("chat", {**CHAT, "tools": [1]}, "Grammar error: bad schema", None, "tools"),
        ("chat", CHAT, "x", "body.documents.0.title", "documents[0].title"),
        ("chat", CHAT, BLOB, "body.messages.0.CustomMessageParam.content", "messages[0].content"),
        ("completion", COMPLETION, "x", "body.stop", "stop"),
        ("completion", COMPLETION, "something went wrong", None, None),
    ],
)
def test_the_field_is_named(
    kind: ItemKind, item: Any, message: str, param: str | None, field: str | None
) -> None:
    error = engine_error(kind, item, {"message": message, "param": param, "code": 400}, status=400)
    assert error.param == field
    if field is not None:
        assert field.partition("[")[0] in error.message
    assert (error.type, error.code) == ("BadRequestError", 400)


def test_a_prompt_that_leaves_no_room_is_blamed_itself() -> None:
    found = {"message": "max_tokens must be at least 1, got 0. (parameter=max_tokens)", "param": "max_tokens"}
    error = engine_error("chat", CHAT, found, status=400)
    assert error.param == "messages"
    assert error.message.startswith("messages: has no room for an answer")


def test_a_blob_of_validation_errors_becomes_one_sentence() -> None:
    found = {"message": BLOB, "param": "body.messages.0.CustomMessageParam.content", "type": "Bad Request"}
    error = engine_error("chat", CHAT, found, status=400)
    assert error.message == "messages[0].content: Input should be a valid string"


def test_the_engines_own_failures_keep_their_type() -> None:
    error = engine_error(
        "chat", CHAT, {"message": "division by zero", "type": "InternalServerError"}, status=500
    )
    assert (error.type, error.code, error.param) == ("InternalServerError", 500, None)


def test_an_empty_error_object_still_says_something() -> None:
    assert engine_error("chat", CHAT, {}, status=404).message == "the engine answered with status 404"
