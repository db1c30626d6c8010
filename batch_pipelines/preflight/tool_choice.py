"""Tools of an item against one another, and against what the engine was set up for."""

from collections.abc import Mapping
from typing import Any

from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.refusal import refusal

__all__ = ["check_tools"]


def check_tools(item: Mapping[str, Any], *, auto_tools: bool) -> ItemError | None:
    """Check `tools` and `tool_choice`, or `functions` and `function_call`.

    Args:
        item: A chat with the one or the other.
        auto_tools: Whether the engine finds calls the model makes of its own accord.
    """
    if item.get("tools"):
        return _check("tools", "tool_choice", [tool["function"] for tool in item["tools"]], item, auto_tools)
    if item.get("functions"):
        return _check("functions", "function_call", item["functions"], item, auto_tools)
    return None


def _check(
    field: str, choice_field: str, functions: list[Any], item: Mapping[str, Any], auto_tools: bool
) -> ItemError | None:
    names: set[str] = set()
    for at, function in enumerate(functions):
        path = f"{field}[{at}].function.name" if field == "tools" else f"{field}[{at}].name"
        if function["name"] in names:
            return refusal(path, f"is {function['name']!r}, as one before it; a call could not be told apart")
        names.add(function["name"])
    choice = item.get(choice_field)
    if isinstance(choice, dict):
        name = choice["function"]["name"] if "function" in choice else choice["name"]
        if not name or name not in names:
            return refusal(choice_field, f"names {name!r}, which is not among `{field}`")
    elif choice in (None, "auto") and not auto_tools:
        said = "is auto" if choice else "is unset, which means auto"
        alternatives = (
            'to "required", "none" or one of the tools' if field == "tools" else 'to "none" or a name'
        )
        return refusal(
            choice_field,
            f"{said}, and the engine has no parser that finds the model's calls; set "
            f"model_config.tool_call_parser, or set {choice_field} {alternatives}",
        )
    return None
