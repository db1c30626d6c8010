"""Tools and the choice among them."""

from typing import Any

import pytest

from batch_pipelines.preflight.tool_choice import check_tools


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def message(item: dict[str, Any], *, auto_tools: bool = False) -> str | None:
    error = check_tools(item, auto_tools=auto_tools)
    return error.message if error is not None else None


NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize("choice", ["none", "required", NAMED])
def test_choices_that_need_no_parser(choice: Any) -> None:
    assert message({"tools": [tool("f"), tool("g")], "tool_choice": choice}) is None
    functions = {"functions": [{"name": "f"}], "function_call": {"name": "f"} if choice == NAMED else "none"}
    assert message(functions) is None


@pytest.mark.parametrize("choice", [{}, {"tool_choice": None}, {"tool_choice": "auto"}], ids=str)
def test_the_models_own_choice_needs_a_parser(choice: dict[str, Any]) -> None:
    item = {"tools": [tool("f")], **choice}
    assert message(item, auto_tools=True) is None
    said = message(item)
    assert said is not None
    assert said.startswith("tool_choice: is ")
    assert "set model_config.tool_call_parser, or set tool_choice to" in said


def test_the_models_own_choice_in_the_older_form() -> None:
    item = {"functions": [{"name": "f"}]}
    assert message(item, auto_tools=True) is None
    said = message(item)
    assert said is not None
    assert said.startswith("function_call: is unset, which means auto")


def test_a_tool_that_is_not_there() -> None:
    item = {"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}
    assert message(item) == "tool_choice: names 'g', which is not among `tools`"
    older = {"functions": [{"name": "f"}], "function_call": {"name": "g"}}
    assert message(older) == "function_call: names 'g', which is not among `functions`"


def test_two_tools_of_one_name() -> None:
    said = message({"tools": [tool("f"), tool("g"), tool("f")], "tool_choice": "none"})
    assert said == "tools[2].function.name: is 'f', as one before it; a call could not be told apart"


@pytest.mark.parametrize("item", [{}, {"tools": []}, {"tools": None, "functions": None}], ids=str)
def test_no_tools(item: dict[str, Any]) -> None:
    assert message(item) is None
