"""Telling the kinds of items apart by their shape.

An item with `messages` is a chat, even if it has a `prompt` too; one with only a `prompt` is a completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["NEITHER", "ItemKind", "Misfits", "find_misfits", "kind_of", "wrong_kind"]

ItemKind = Literal["completion", "chat", "v1"]

NEITHER = "has neither `prompt` (a completion) nor `messages` (a chat)"

_NAMES = {
    "completion": "a completion (it has `prompt`)",
    "chat": "a chat (it has `messages`)",
    "v1": "a V1 prompt",
}


def kind_of(item: Any) -> ItemKind | None:
    """The kind of a parsed item; none if it is not an object or has neither key."""
    keys = item if isinstance(item, dict) else getattr(item, "model_fields_set", ())
    return "chat" if "messages" in keys else "completion" if "prompt" in keys else None


def wrong_kind(found: ItemKind, expected: ItemKind) -> str:
    """Says that an item is of another kind than those before it."""
    others = {"completion": "completions", "chat": "chats", "v1": "V1 prompts"}[expected]
    return f"is {_NAMES[found]}, but the items before it are {others}; all must be of one kind"


@dataclass(frozen=True, slots=True)
class Misfits:
    """Items of a list that cannot be checked as items of the list's kind.

    Attributes:
        messages: What to report, by index.
        indices: All of them, also those not worth a message of their own.
    """

    messages: dict[int, str]
    indices: frozenset[int]


def find_misfits(items: Sequence[Any]) -> Misfits:
    """Find items of no kind, and of another kind than the first; the first of these gets the message."""
    expected: ItemKind | None = None
    messages: dict[int, str] = {}
    indices = set()
    mixed = False
    for index, item in enumerate(items):
        kind = kind_of(item)
        if kind is None:
            if isinstance(item, dict):
                messages[index] = NEITHER
                indices.add(index)
        elif expected is None:
            expected = kind
        elif kind != expected:
            indices.add(index)
            if not mixed:
                messages[index] = wrong_kind(kind, expected)
            mixed = True
    return Misfits(messages, frozenset(indices))
