"""How validation errors are told to people: a path and one sentence each, without the checker's own noise.

What is wrong is decided by the models; only wording belongs here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

__all__ = ["FieldError", "RequestInvalid", "describe", "dotted", "pointer"]

_SHOWN = 50

Path = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field.

    Attributes:
        pointer: JSON pointer to the field, such as `/content/3/temperature`; empty for the whole.
        message: What is wrong, for its sender.
    """

    pointer: str
    message: str

    def __str__(self) -> str:
        """The pointer and the message."""
        return f"{self.pointer or 'request'}: {self.message}"


class RequestInvalid(Exception):
    """A request that breaks the contract or a deployment's rules, with every reason found."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        """Keep the errors.

        Args:
            errors: At least one.
        """
        self.errors = list(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        """All errors, one a line; of very many, the first ones."""
        count = len(self.errors)
        lines = [f"the request has {count} error{'s' * (count != 1)}:"]
        lines += [f"  {error}" for error in self.errors[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"  and {count - _SHOWN} more")
        return "\n".join(lines)


def describe(
    error: ValidationError, hint: Callable[[Path], str] = lambda _: "", limit: int | None = None
) -> list[tuple[Path, str]]:
    """Path and message of each error.

    Args:
        error: What pydantic reported.
        hint: Given the path of an unknown field, the end of the sentence about it.
        limit: Most errors to word.
    """
    described = []
    for detail in error.errors(include_url=False, include_context=False)[:limit]:
        path = _without_tags(detail["loc"])
        message = _message(detail["type"], detail["msg"], detail["input"])
        described.append((path, message + hint(path) if detail["type"] == "extra_forbidden" else message))
    return described


def pointer(path: Path) -> str:
    """A path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def dotted(path: Path) -> str:
    """A path as people write it, such as `messages[0].content`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _without_tags(path: Path) -> Path:
    """Drop the names of the union branches taken: bracketed ones, and a message's role."""
    kept: list[int | str] = []
    in_message = False
    for part in path:
        is_role = in_message and isinstance(part, str)
        in_message = isinstance(part, int) and kept[-1:] == ["messages"]
        if is_role or (isinstance(part, str) and part.startswith("<") and part.endswith(">")):
            continue
        kept.append(part)
    return tuple(kept)


def _message(kind: str, text: str, value: Any) -> str:
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "unknown field"
    if kind == "union_tag_not_found":
        return "must have a `role`"
    if kind == "union_tag_invalid":
        known = text.partition("expected tags: ")[2]
        return (
            f"`role` must be one of {known}{_shown(value.get('role') if isinstance(value, dict) else None)}"
        )
    if kind in ("model_type", "dict_type"):
        return f"must be an object{_shown(value)}"
    if kind == "list_type":
        return f"must be a list{_shown(value)}"
    if not text.startswith("Input should "):
        return text[:1].lower() + text[1:].replace(" after validation", "")
    return f"must {text.removeprefix('Input should ').replace('be a valid ', 'be a ')}{_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " (got an object)"
    if isinstance(value, list):
        return " (got a list)"
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        return ""
    return f" (got {text})" if len(text) <= 60 else f" (got {text[:57]}...)"
