"""A look over all items of an input, as sharding takes it, that keeps none of them and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batch_pipelines.api.items import ItemKind, ValidItem
from batch_pipelines.inputs.reader import InputStream
from batch_pipelines.preflight.protocol import Preflight
from batch_pipelines.stages.judge import ItemCheck, check_header, judge

__all__ = ["ItemCount", "RefusedItem", "count_items"]

SHOWN_REFUSALS: Final = 10


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item that would get an error record.

    Attributes:
        index: Its place in the input, from 0.
        line: The line it starts on, from 1; 0 of inline content.
        field: The field at fault, if it is one.
        message: What is wrong.
    """

    index: int
    line: int
    field: str | None
    message: str


@dataclass(frozen=True, slots=True)
class ItemCount:
    """What one pass over the input showed.

    Attributes:
        kind: What the items are; None if none is valid.
        items: All of them.
        refused: Those that would get an error record.
        estimated_tokens: About how many tokens the others cost, prompts and answers.
        first_refused: The first of the refused.
    """

    kind: ItemKind | None
    items: int
    refused: int
    estimated_tokens: int
    first_refused: tuple[RefusedItem, ...]


def count_items(stream: InputStream, check: ItemCheck, preflight: Preflight) -> ItemCount:
    """Validate every item of an input, as sharding does, and keep none.

    Args:
        stream: The input.
        check: Checks what the item alone does not show.
        preflight: Checks the fields beside the prompts of V1 content.

    Raises:
        InputError: The rest of the input cannot be trusted.
        RequestInvalid: The fields beside the prompts of V1 content break the contract.
        ModelUnfit: The model cannot answer such items at all.
    """
    kind: ItemKind | None = None
    if stream.header is not None:
        check_header(stream.header.fields, preflight)
        kind = "v1"
    items = refused = tokens = 0
    first: list[RefusedItem] = []
    for raw in stream.items:
        items += 1
        judged = judge(kind, raw, check)
        if isinstance(judged, ValidItem):
            kind = judged.kind
            tokens += judged.tokens
            continue
        refused += 1
        if len(first) < SHOWN_REFUSALS:
            first.append(RefusedItem(raw.index, raw.line, judged.param, judged.message))
    return ItemCount(kind, items, refused, tokens, tuple(first))
