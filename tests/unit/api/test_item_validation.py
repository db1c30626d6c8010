"""Checking the lines of an input file: kinds, bounds, error texts, and input that is hostile."""

from typing import Any

import orjson
import pytest

from batch_pipelines.api.items import (
    ItemKind,
    ValidItem,
    estimate_tokens,
    extra_keys,
    unknown_keys,
    validate_item,
)
from batch_pipelines.api.output import ItemError

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"prompt": "hi"}


def error_of(item: Any, kind: ItemKind | None = None) -> ItemError:
    result = validate_item(kind, item if isinstance(item, bytes) else orjson.dumps(item))
    assert isinstance(result, ItemError)
    return result


def accepts(item: Any, kind: ItemKind | None = None) -> bool:
    return isinstance(validate_item(kind, orjson.dumps(item)), ValidItem)


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (CHAT, "chat"),
        (COMPLETION, "completion"),
        ({**CHAT, **COMPLETION}, "chat"),
        ({"prompt": "messages"}, "completion"),
        ({"prompt": 'say "messages"'}, "completion"),
        ({"text": "a"}, None),
        ([], None),
        ("text", None),
    ],
)
def test_kind_is_told_by_shape(item: Any, kind: ItemKind | None) -> None:
    result = validate_item(None, orjson.dumps(item))
    assert (result.kind if isinstance(result, ValidItem) else None) == kind


def test_key_written_with_escapes_counts_too() -> None:
    data = b'{"prompt": "a", "mess\\u0061ges": [{"role": "user", "content": "hi"}]}'
    result = validate_item(None, data)
    assert isinstance(result, ValidItem)
    assert result.kind == "chat"


def test_item_of_another_kind_than_those_before_is_an_error() -> None:
    error = error_of(CHAT, "completion")
    assert error.message == (
        "the item is a chat (it has `messages`), but the items before it are completions; "
        "all must be of one kind"
    )
    assert "are chats" in error_of(COMPLETION, "chat").message


def test_item_of_no_kind_is_an_error() -> None:
    assert error_of({"text": "a"}).message == (
        "the item has neither `prompt` (a completion) nor `messages` (a chat)"
    )


def test_v1_item_is_a_string() -> None:
    assert validate_item("v1", b'"hello"') == ValidItem("v1", 1, "hello", b'"hello"')
    assert error_of(5, "v1").message == "the item must be a string, one prompt"
    assert "column" in error_of(b'"hel', "v1").message


def test_error_has_the_shape_of_the_engine_own() -> None:
    error = error_of({**CHAT, "temperature": 2.5})
    assert error.model_dump() == {
        "message": "temperature: must be less than or equal to 2 (got 2.5)",
        "type": "BadRequestError",
        "param": "temperature",
        "code": 400,
    }


def test_error_names_every_field_and_its_path() -> None:
    error = error_of({"messages": [{"role": "user", "content": 5}], "n": 0, "stop": 3})
    assert error.message == (
        "n: must be greater than or equal to 1 (got 0); stop: must be a string or a list of strings (got 3); "
        "messages[0].content: must be a string or a list of content parts (got 5)"
    )


def test_very_many_errors_are_cut_short() -> None:
    assert error_of({"messages": [{"role": "user"}] * 500}).message.endswith("; and 490 more")


@pytest.mark.parametrize(
    "data",
    [
        b'{"prompt": NaN}',
        b'{"prompt": "a", "x": Infinity}',
        b'{"prompt": "a", "x": -Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "x": "\\ud800"}',
        b'{"prompt": "a", "\\udc00": 1}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "a"',
        b'{"prompt": "a",}',
        b"{'prompt': 'a'}",
        b'{"prompt": "a"} {"prompt": "b"}',
        b'{"prompt": "a\x00b"}',
        b"",
        b"   ",
        b"[" * 100_000,
        b'{"prompt": "a", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_is_no_strict_json_is_an_error_that_names_the_column(data: bytes) -> None:
    for kind in (None, "completion", "chat", "v1"):
        error = error_of(data, kind)
        assert error.message.startswith("the item is not valid JSON: ")
        assert "(column " in error.message
        assert len(error.message) < 200


@pytest.mark.parametrize("value", [7, "a", None, True, [CHAT]])
def test_item_that_is_no_object_is_an_error(value: Any) -> None:
    assert error_of(value).message == "the item must be a JSON object"


def test_nesting_is_limited_by_depth_not_by_size() -> None:
    def nested(depth: int) -> dict[str, Any]:
        deep: Any = {}
        for _ in range(depth):
            deep = {"a": deep}
        return {**COMPLETION, "x": deep}

    assert accepts(nested(190))
    assert error_of(nested(210)).message == "the item is nested deeper than 200 levels"
    assert accepts({**COMPLETION, "x": [[]] * 1000})


def test_duplicate_key_counts_once_the_last() -> None:
    assert isinstance(validate_item(None, b'{"prompt": 1, "prompt": "a"}'), ValidItem)


SHARED: list[tuple[str, list[Any], list[Any]]] = [
    ("best_of", [0, 1, 20], [-1, 21, "1"]),
    ("top_k", [-1, 0, 50], [-2, 0.5]),
    ("min_p", [0, 0.5, 1], [-0.1, 1.1]),
    ("use_beam_search", [True, False], [1, "true"]),
    ("length_penalty", [-1, 0, 1.5], ["1"]),
    ("repetition_penalty", [1, 1.5], ["1", True]),
    ("early_stopping", [True, False, "never"], ["always", 1]),
    ("stop_token_ids", [[], [1, 2]], [["a"], 1, [1.5]]),
    ("min_tokens", [0, 5], [-1]),
    (
        "response_format",
        [{"type": "text"}, {"type": "json_object"}],
        [{"type": "xml"}, {}, "text", {"type": ["text"]}],
    ),
    ("guided_json", [{}, {"type": "object"}], ["{}", []]),
    ("guided_choice", [["a"]], ["a", [1]]),
    ("frequency_penalty", [-2, 2], [-2.1, 2.1]),
    ("presence_penalty", [-2, 2], [-2.1, 2.1]),
    ("logit_bias", [{"1": -100}, {"1": 100.0}, {}], [{"1": 101}, {"1": "5"}, []]),
    ("max_tokens", [0, 16, 16.0], [-1, 1.5, "16", True]),
    ("n", [1, 128], [0, 129]),
    ("seed", [0, -(2**63), 2**63 - 1], [2**63, 1.5, "1"]),
    ("stop", ["a", [], ["a"] * 5], [1, [1]]),
    ("stream", [False, True], [0]),
    ("stream_options", [{}, {"include_usage": True}], [True]),
    ("temperature", [0, 1, 2.0], [-0.1, 2.1, "1", True]),
    ("top_p", [0, 1], [-0.1, 1.1]),
    ("model", ["m"], [1]),
]
COMPLETION_ONLY: list[tuple[str, list[Any], list[Any]]] = [
    (
        "prompt",
        ["", "a", ["a"], [1], [[1], [2]]],
        [1, {}, [], ["a", 1], [1, "a"], [[]], [[1], 2], [-1], [1.5]],
    ),
    ("logprobs", [0, 5, True, False], [-1, 6, "1"]),
    ("echo", [True], [1]),
    ("suffix", ["a"], [1]),
]
CHAT_ONLY: list[tuple[str, list[Any], list[Any]]] = [
    ("messages", [CHAT["messages"]], [[], None, "hi", {}, [1]]),
    ("logprobs", [True, False], [1, "true"]),
    ("top_logprobs", [0, 20], [-1, 21]),
    ("max_completion_tokens", [0, 1], [-1]),
    ("metadata", [{"a": "b"}], [{"a": 1}]),
    ("service_tier", ["auto", "default", "flex"], ["scale"]),
    ("reasoning_effort", ["low", "medium", "high"], ["max"]),
    ("documents", [[{"title": "a", "text": "b"}]], [["a"]]),
    (
        "tools",
        [[], [{"type": "function", "function": {"name": "f"}}]],
        [[{"type": "code"}], [{"type": "function"}] * 129],
    ),
    ("tool_choice", ["none", "auto", "required"], ["any", 1, {"type": "function"}]),
    ("functions", [[{"name": "f"}], [{"name": "f"}] * 128], [[], [{"name": "f"}] * 129, [{}]]),
    ("function_call", ["none", "auto", {"name": "f"}], ["required", {}]),
    ("audio", [{"voice": "alloy", "format": "wav"}], [{"voice": "alloy"}, {"voice": "a", "format": "midi"}]),
    ("web_search_options", [{}, {"search_context_size": "low"}], [{"search_context_size": "huge"}]),
    (
        "prediction",
        [{"type": "content", "content": "a"}],
        [{"type": "text", "content": "a"}, {"type": "content"}],
    ),
    ("priority", [0, -5], ["high"]),
]
CASES = [
    (base, *case)
    for base, table in ((COMPLETION, SHARED + COMPLETION_ONLY), (CHAT, SHARED + CHAT_ONLY))
    for case in table
]
GOOD = [(base, name, value) for base, name, good, _ in CASES for value in good]
BAD = [(base, name, value) for base, name, _, bad in CASES for value in bad]


@pytest.mark.parametrize(("base", "name", "value"), GOOD)
def test_value_within_bounds_is_accepted(base: dict[str, Any], name: str, value: Any) -> None:
    assert accepts({**base, name: value})


@pytest.mark.parametrize(("base", "name"), [(base, name) for base, name, *_ in CASES if name != "messages"])
def test_null_is_accepted(base: dict[str, Any], name: str) -> None:
    assert accepts({**base, name: None})


@pytest.mark.parametrize(("base", "name", "value"), BAD)
def test_value_out_of_bounds_is_refused_by_name(base: dict[str, Any], name: str, value: Any) -> None:
    error = error_of({**base, name: value})
    assert error.param is not None
    assert error.param.split(".")[0].split("[")[0] == name
    assert error.message.startswith(error.param)


def test_keys_of_the_sender_own_are_accepted() -> None:
    assert accepts({**CHAT, "custom_id": "row-7", "anything": {"at": ["all"]}})


def test_token_estimate_grows_with_text_and_limit() -> None:
    assert estimate_tokens(b"x" * 400) == 100
    assert estimate_tokens(orjson.dumps({**COMPLETION, "max_tokens": 1000})) > 1000
    assert estimate_tokens(orjson.dumps({**CHAT, "max_completion_tokens": 1000})) > 1000
    assert estimate_tokens(orjson.dumps({**CHAT, "max_tokens": None})) < 100
    result = validate_item(None, orjson.dumps({**COMPLETION, "max_tokens": 1000}))
    assert isinstance(result, ValidItem)
    assert result.tokens > 1000


def test_keys_of_the_sender_own_are_told_apart_by_kind() -> None:
    item = {**CHAT, "custom_id": "row-7", "n": 2, "suffix": "x", "note": None}
    assert extra_keys("chat", item) == {"custom_id": "row-7", "suffix": "x", "note": None}
    assert extra_keys("completion", {**COMPLETION, "suffix": "x", "id": 1}) == {"id": 1}
    assert extra_keys("v1", "a prompt") == {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"custom_id": 1, "messages": 5}', {"custom_id": 1}),
        (b'{"custom_id": 1, "temperature": "x", "tools": 5, "suffix": 1}', {"custom_id": 1}),
        (b'{"custom_id": 1', {}),
        (b"[1]", {}),
        (b'"text"', {}),
        (b'{"x": ' + b"[" * 300 + b"]" * 300 + b"}", {}),
    ],
)
def test_keys_of_a_broken_item_are_found_if_it_is_json(data: bytes, expected: dict[str, Any]) -> None:
    assert unknown_keys(data) == expected
