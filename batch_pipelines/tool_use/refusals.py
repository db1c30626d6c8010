"""Which items cannot be answered with a tool, because its output has no one place to go."""

from collections.abc import Mapping
from typing import Any, Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.tool_use.code_blocks import CALL
from batch_pipelines.translation.forms import sets_a_form
from batch_pipelines.translation.sampling import MAX_STOPS

__all__ = ["refusal"]

_WITH_TOOL: Final = "cannot be combined with the job's `tool_config`"


def refusal(kind: ItemKind, item: Any, body: Mapping[str, Any]) -> ItemError | None:
    """Why an item cannot be answered with a tool, if it cannot.

    Args:
        kind: What the item is.
        item: The item's parsed JSON; for V1, one prompt.
        body: The engine's request for it.
    """
    found = _too_many_stops(kind, body)
    if found is None and kind != "v1":
        found = _several_answers(item) or _set_form(item)
    if found is None:
        found = _unfit_prompt(item) if kind == "completion" else _unfit_chat(item) if kind == "chat" else None
    if found is None:
        return None
    field, reason = found
    return ItemError(message=f"{field}: {reason}", type="BadRequestError", param=field, code=400)


def _too_many_stops(kind: ItemKind, body: Mapping[str, Any]) -> tuple[str, str] | None:
    stops = body.get("stop") or []
    given = len({stops, CALL} if isinstance(stops, str) else {*stops, CALL}) - 1
    if given < MAX_STOPS:
        return None
    field = "stop_sequences" if kind == "v1" else "stop"
    return field, (
        f"has {given} strings; the engine takes {MAX_STOPS} at most, and the job's `tool_config` needs one"
    )


def _several_answers(item: Mapping[str, Any]) -> tuple[str, str] | None:
    for field in ("n", "best_of"):
        if (item.get(field) or 1) > 1:
            return field, f"is {item[field]}; with the job's `tool_config` each item has one answer"
    if item.get("use_beam_search"):
        return "use_beam_search", f"{_WITH_TOOL}: the tool's output continues one text"
    return None


def _set_form(item: Mapping[str, Any]) -> tuple[str, str] | None:
    form = sets_a_form(item)
    return None if form is None else (form, f"{_WITH_TOOL}: a text of that form has no room for code")


def _unfit_prompt(item: Mapping[str, Any]) -> tuple[str, str] | None:
    if not isinstance(item.get("prompt"), str):
        return "prompt", "must be one string with the job's `tool_config`, whose output is text put behind it"
    return _echo(item)


def _unfit_chat(item: Mapping[str, Any]) -> tuple[str, str] | None:
    for field in ("tools", "functions"):
        if item.get(field):
            return field, f"{_WITH_TOOL}; use one or the other"
    if item.get("continue_final_message") and not isinstance(item["messages"][-1].get("content"), str):
        return "continue_final_message", (
            "needs a last message whose content is a string with the job's `tool_config`"
        )
    return _echo(item)


def _echo(item: Mapping[str, Any]) -> tuple[str, str] | None:
    return ("echo", f"{_WITH_TOOL}: each round would repeat the text") if item.get("echo") else None
