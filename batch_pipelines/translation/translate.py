"""Translating one item: by the table, into a request and what is to be done to its answer."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.engines.protocol import EngineRequest
from batch_pipelines.translation.draft import Draft, FieldRule, Item, Rewrite
from batch_pipelines.translation.table import CHAT_FIELDS, COMPLETION_FIELDS, V1_FIELDS

__all__ = ["CHAT_PATH", "COMPLETION_PATH", "Translation", "draft_of", "translate"]

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"

_PATHS: Final[dict[ItemKind, str]] = {
    "completion": COMPLETION_PATH,
    "chat": CHAT_PATH,
    "v1": COMPLETION_PATH,
}
_FIELDS: Final[dict[ItemKind, dict[str, FieldRule]]] = {
    "completion": COMPLETION_FIELDS,
    "chat": CHAT_FIELDS,
    "v1": V1_FIELDS,
}


@dataclass(frozen=True, slots=True)
class Translation:
    """What to ask the engine, and what to do to its answer.

    Attributes:
        request: The engine's request.
        rewrites: What is done to the answer, in this order.
    """

    request: EngineRequest
    rewrites: tuple[Rewrite, ...] = ()


def translate(
    kind: ItemKind, item: Any, *, served_model: str, v1_header: Item | None = None
) -> Translation | ItemError:
    """The engine's request for one valid item, or why there is none.

    Args:
        kind: What the item is.
        item: The item's parsed JSON; for V1, one prompt.
        served_model: The name the engine knows the model by.
        v1_header: The fields beside `prompts` of V1 content.
    """
    draft = draft_of(kind, item, v1_header=v1_header)
    if isinstance(draft, ItemError):
        return draft
    body = {"model": served_model, **draft.body}
    return Translation(EngineRequest(_PATHS[kind], orjson.dumps(body)), tuple(draft.rewrites))


def draft_of(kind: ItemKind, item: Any, *, v1_header: Item | None = None) -> Draft | ItemError:
    """The request for an item before it is made into bytes, without the model's name; see `translate`."""
    draft = Draft(kind, v1_header or {}, {"prompt": item}) if kind == "v1" else Draft(kind, item, {})
    fields = _FIELDS[kind]
    for name, value in draft.item.items():
        rule = fields.get(name)
        if rule is None or value is None:
            continue
        reason = rule.apply(draft, name, value)
        if reason is not None:
            return ItemError(message=f"{name}: {reason}", type="BadRequestError", param=name, code=400)
    return draft
