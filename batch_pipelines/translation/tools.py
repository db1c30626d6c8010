"""Rules on tools, in today's form and in the older one, `functions`."""

import re
from collections.abc import Iterable
from typing import Any

from batch_pipelines.translation.draft import Draft, Item
from batch_pipelines.translation.forms import sets_a_form
from batch_pipelines.translation.rewrites import as_function_call

__all__ = ["function_call", "functions", "parallel_tool_calls", "tool_choice", "tools", "with_tool_messages"]

_CALL_ID = "call_{}"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


def tools(draft: Draft, name: str, value: list[dict[str, Any]]) -> str | None:
    """Send tools; where a call is forced, its arguments keep to their schema unless told otherwise."""
    if value:
        draft.body[name] = _strict(value) if _forces(draft.item.get("tool_choice")) else value
    return _bad_name(tool["function"] for tool in value)


def tool_choice(draft: Draft, name: str, value: Any) -> str | None:
    """Send it, where there are tools to choose among."""
    if not draft.item.get("tools"):
        return None if value in ("auto", "none") else "needs `tools`"
    form = sets_a_form(draft.item)
    if _forces(value) and form is not None:
        return f"forces a call, so it cannot be combined with `{form}`, which sets the form of the text"
    draft.body[name] = value
    return None


def parallel_tool_calls(draft: Draft, name: str, value: bool) -> None:
    """Send it, where there are tools."""
    if draft.item.get("tools"):
        draft.body[name] = value


def functions(draft: Draft, _: str, value: list[dict[str, Any]]) -> str | None:
    """Send functions as tools of which one may be called, and give the call back in the older form."""
    if draft.item.get("tools"):
        return "cannot be combined with `tools`, which it is the older form of"
    choice: Any = draft.item.get("function_call") or "auto"
    forced = isinstance(choice, dict)
    form = sets_a_form(draft.item)
    if forced and form is not None:
        return f"has a forced call, so it cannot be combined with `{form}`, which sets the form of the text"
    offered = [{"type": "function", "function": function} for function in value]
    draft.body["tools"] = _strict(offered) if forced else offered
    draft.body["tool_choice"] = (
        {"type": "function", "function": {"name": choice["name"]}} if forced else choice
    )
    draft.body["parallel_tool_calls"] = False
    draft.rewrites.append(as_function_call)
    return _bad_name(value)


def function_call(draft: Draft, _: str, value: Any) -> str | None:
    """The work is done for `functions`."""
    if draft.item.get("functions") or value in ("auto", "none"):
        return None
    return "needs `functions`"


def with_tool_messages(messages: list[Item]) -> list[Item]:
    """Messages in the older form, made into those that chat templates know.

    A call of the assistant's becomes its only tool call, and the function's message the tool's answer to it.
    """
    if not any(message.get("role") == "function" or message.get("function_call") for message in messages):
        return messages
    made: list[Item] = []
    calls = 0
    for message in messages:
        call = message.get("function_call")
        if call:
            calls += 1
            kept = {key: value for key, value in message.items() if key != "function_call"}
            tool_call = {"id": _CALL_ID.format(calls), "type": "function", "function": call}
            made.append({**kept, "tool_calls": [*(message.get("tool_calls") or []), tool_call]})
        elif message.get("role") == "function":
            content = message.get("content") or ""
            made.append(
                {
                    "role": "tool",
                    "tool_call_id": _CALL_ID.format(max(calls, 1)),
                    "name": message.get("name"),
                    "content": content,
                }
            )
        else:
            made.append(message)
    return made


def _forces(choice: Any) -> bool:
    return choice == "required" or isinstance(choice, dict)


def _bad_name(functions: Iterable[Item]) -> str | None:
    bad = next((each["name"] for each in functions if not _NAME.fullmatch(each["name"])), None)
    if bad is None:
        return None
    return f"has a function named {bad[:80]!r}; a name has 1 to 64 letters, digits, underscores and dashes"


def _strict(offered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # vLLM leaves the arguments of a tool without `strict` free, even where the call is forced.
    return [
        {**tool, "function": {"strict": True, "parameters": _NO_PARAMETERS, **_set(tool["function"])}}
        for tool in offered
    ]


def _set(function: Item) -> dict[str, Any]:
    return {key: value for key, value in function.items() if value is not None}
