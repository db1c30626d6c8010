"""What a rule works on, and the rules that serve more than one field.

Only fields that are set are sent, so that an unset one keeps the engine's default or the model's own
generation settings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from batch_pipelines.api.items import ItemKind

__all__ = [
    "Body",
    "Draft",
    "Fate",
    "FieldRule",
    "Item",
    "Rewrite",
    "Rule",
    "emulated",
    "no_effect",
    "passed",
    "refused",
    "send",
    "send_unless",
    "translated",
]

Item = Mapping[str, Any]
Body = dict[str, Any]
Rewrite = Callable[[Body], Body]
"""Changes the engine's answer, so that it is what the item asked for; raises `KeyError`, `TypeError`,
`ValueError` or `IndexError` where the answer lacks what it needs."""
Fate = Literal["passed", "translated", "emulated", "refused", "no effect"]


@dataclass(slots=True)
class Draft:
    """A request to the engine in the making.

    Attributes:
        kind: What the item is.
        item: The item's fields; of a V1 prompt, the header's.
        body: What is sent.
        rewrites: What is done to the answer, in this order.
    """

    kind: ItemKind
    item: Item
    body: Body
    rewrites: list[Rewrite] = field(default_factory=list)


Rule = Callable[[Draft, str, Any], str | None]
"""Puts a field into the draft; returns why that cannot be done, if it cannot."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What becomes of one field.

    Attributes:
        fate: In a word.
        apply: Does it.
        says: What happens, for the page of all fields; empty where the field's own description says it all.
    """

    fate: Fate
    apply: Rule
    says: str = ""


def passed(says: str = "", rule: Rule | None = None) -> FieldRule:
    """The engine has the field, by the same name; `rule` checks its value first."""
    return FieldRule("passed", rule or send, says)


def translated(says: str, rule: Rule) -> FieldRule:
    """The engine has it under another name or in another form."""
    return FieldRule("translated", rule, says)


def emulated(says: str, rule: Rule) -> FieldRule:
    """The engine does not have it; other requests or the reply are made up for it."""
    return FieldRule("emulated", rule, says)


def refused(says: str, *neutral: Any) -> FieldRule:
    """An error in the item's place, unless the value says the same as leaving the field out."""

    def rule(_: Draft, __: str, value: Any) -> str | None:
        return None if value in neutral else says

    return FieldRule("refused", rule, says)


def no_effect(says: str) -> FieldRule:
    """Accepted, and rightly without effect on the text."""
    return FieldRule("no effect", lambda _, __, ___: None, says)


def send(draft: Draft, name: str, value: Any) -> str | None:
    """Send the field as it is."""
    draft.body[name] = value
    return None


def send_unless(*neutral: Any) -> Rule:
    """Send a value, unless it says the same as leaving the field out and engines refuse it."""

    def rule(draft: Draft, name: str, value: Any) -> None:
        if value not in neutral:
            draft.body[name] = value

    return rule
