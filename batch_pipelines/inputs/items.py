"""What reading an input gives, and the one error of a file that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass


class InputError(Exception):
    """The file as a whole cannot be read as items. The text says where (line, byte) and what to do."""


@dataclass(frozen=True, slots=True)
class RawItem:
    """One item, not parsed.

    Attributes:
        index: position in the file, from 0; blank lines take none.
        line: line on which the item starts, from 1.
        data: the item's bytes on one line; None if there is an `error`.
        error: why the item cannot be used (too long, too deep); None if there is `data`.
    """

    index: int
    line: int
    data: bytes | None
    error: str | None


def too_long(limit: int) -> str:
    """The error of an item above the size limit.

    Args:
        limit: bytes.
    """
    return f"is longer than {limit} bytes, the limit for one item"
