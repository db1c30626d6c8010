"""Checking the items of an input file: millions of them, so one pass over each and no objects kept.

Only what the item alone shows is checked; whether a prompt fits the model is the engine's matter.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import ValidationError

from batch_pipelines.api.chat import FilteredChatCompletionV2Request
from batch_pipelines.api.completion import FilteredCompletionV2Request
from batch_pipelines.api.errors import describe, dotted
from batch_pipelines.api.kinds import NEITHER, ItemKind, kind_of, wrong_kind
from batch_pipelines.api.nesting import MAX_DEPTH, too_deep
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.sampling import SamplingFields

__all__ = [
    "ECHOED",
    "ItemKind",
    "ValidItem",
    "estimate_tokens",
    "extra_keys",
    "unknown_keys",
    "validate_item",
]

ECHOED: Final = frozenset({"user", "metadata", "store", "service_tier"})
"""Fields without effect that are their sender's notes: a record carries them, as it does unknown keys."""

_MOST_ERRORS = 10
_MODELS: dict[ItemKind, type[SamplingFields]] = {
    "completion": FilteredCompletionV2Request,
    "chat": FilteredChatCompletionV2Request,
}
_KNOWN: dict[ItemKind | None, frozenset[str]] = {
    **{kind: frozenset(model.model_fields) - ECHOED for kind, model in _MODELS.items()}
}
_KNOWN[None] = frozenset[str]().union(*_KNOWN.values())
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d{1,9})')


@dataclass(frozen=True, slots=True)
class ValidItem:
    """An item that keeps the contract.

    Attributes:
        kind: What it is.
        tokens: About how many tokens it costs, prompt and answer.
        item: Its parsed JSON.
        data: Its JSON.
    """

    kind: ItemKind
    tokens: int
    item: Any
    data: bytes


def validate_item(kind: ItemKind | None, data: bytes) -> ValidItem | ItemError:
    """Check one item.

    Args:
        kind: What the items before it were; none for the first, whose own shape decides.
        data: The item's JSON; for V1, the JSON string of one prompt.

    Returns:
        The item's kind and cost, or the error that belongs in its place in the output.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return _error(f"is not valid JSON: {error.msg} (column {error.colno})")
    if kind == "v1":
        return (
            ValidItem("v1", len(data) // 4, value, data)
            if isinstance(value, str)
            else _error("must be a string, one prompt")
        )
    if not isinstance(value, dict):
        return _error("must be a JSON object")
    if too_deep(data, value):
        return _error(f"is nested deeper than {MAX_DEPTH} levels")
    found = kind_of(value)
    if found is None:
        return _error(NEITHER)
    if kind is not None and found != kind:
        return _error(wrong_kind(found, kind))
    try:
        _MODELS[found].__pydantic_validator__.validate_python(value)
    except ValidationError as error:
        return _field_errors(error)
    return ValidItem(found, estimate_tokens(data), value, data)


def extra_keys(kind: ItemKind | None, item: Any) -> dict[str, Any]:
    """What a parsed item's record echoes: keys of its sender's own, and the fields of `ECHOED`."""
    if not isinstance(item, dict):
        return {}
    known = _KNOWN[kind]
    return {key: value for key, value in item.items() if key not in known}


def unknown_keys(data: bytes) -> dict[str, Any]:
    """`extra_keys` of an item that need not be valid, nor even JSON."""
    try:
        item = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return {} if too_deep(data, item) else extra_keys(kind_of(item), item)


def estimate_tokens(data: bytes) -> int:
    """About how many tokens an item costs: its bytes over four, and its token limit if it has one."""
    limit = _MAX_TOKENS.search(data)
    return len(data) // 4 + (int(limit[1]) if limit else 0)


def _error(message: str, param: str | None = None) -> ItemError:
    return ItemError(message=f"the item {message}", type="BadRequestError", param=param, code=400)


def _field_errors(error: ValidationError) -> ItemError:
    described: list[tuple[Any, str]] = describe(error, limit=_MOST_ERRORS)
    texts = [f"{dotted(path)}: {message}" for path, message in described]
    more = error.error_count() - len(texts)
    message = "; ".join(texts) + (f"; and {more} more" if more else "")
    return ItemError(message=message, type="BadRequestError", param=dotted(described[0][0]), code=400)
