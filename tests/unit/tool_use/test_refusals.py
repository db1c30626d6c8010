"""Items whose answer is not one text cannot use the tool, and are told which field is in the way."""

from typing import Any

import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.tool_use.refusals import refusal

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
FORM = {"type": "json_object"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("kind", "item", "field"),
    [
        ("completion", {"prompt": ["a", "b"]}, "prompt"),
        ("completion", {"prompt": ["a"]}, "prompt"),
        ("completion", {"prompt": [1, 2]}, "prompt"),
        ("completion", {"prompt": None}, "prompt"),
        ("completion", {"prompt": "a", "n": 2}, "n"),
        ("completion", {"prompt": "a", "best_of": 3}, "best_of"),
        ("completion", {"prompt": "a", "use_beam_search": True}, "use_beam_search"),
        ("completion", {"prompt": "a", "echo": True}, "echo"),
        ("completion", {"prompt": "a", "guided_regex": "[a-z]"}, "guided_regex"),
        ("chat", {**CHAT, "n": 2}, "n"),
        ("chat", {**CHAT, "response_format": FORM}, "response_format"),
        ("chat", {**CHAT, "tools": [TOOL]}, "tools"),
        ("chat", {**CHAT, "functions": [{"name": "f"}]}, "functions"),
        ("chat", {**CHAT, "echo": True}, "echo"),
        (
            "chat",
            {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}],
             "continue_final_message": True},
            "continue_final_message",
        ),
    ],
)  # fmt: skip
def test_item_that_has_no_one_text_is_refused_by_its_field(
    kind: ItemKind, item: dict[str, Any], field: str
) -> None:
    error = refusal(kind, item, {})
    assert error is not None
    assert (error.param, error.type, error.code) == (field, "BadRequestError", 400)
    assert error.message.startswith(f"{field}: ")
    assert "tool_config" in error.message


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("v1", "a prompt"),
        ("completion", {"prompt": "", "n": 1, "best_of": 1, "use_beam_search": False, "echo": False}),
        ("chat", {**CHAT, "response_format": {"type": "text"}, "tools": [], "n": None}),
        ("chat", {"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": True}),
    ],
)
def test_one_text_is_fine(kind: ItemKind, item: Any) -> None:
    assert refusal(kind, item, {"stop": ["a", "b", "c"]}) is None


@pytest.mark.parametrize(
    ("kind", "item", "field"),
    [("v1", "a", "stop_sequences"), ("completion", {"prompt": "a"}, "stop"), ("chat", CHAT, "stop")],
)
def test_one_of_the_stop_strings_the_engine_takes_is_the_tool_s(
    kind: ItemKind, item: Any, field: str
) -> None:
    error = refusal(kind, item, {"stop": ["a", "b", "c", "d"]})
    assert error is not None
    assert error.param == field
    assert "4" in error.message
    assert refusal(kind, item, {"stop": ["a", "b", "c", "\n```\n"]}) is None
    assert refusal(kind, item, {"stop": "a"}) is None
