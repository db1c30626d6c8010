"""JSON Lines: an item a line."""

from __future__ import annotations

from collections.abc import Iterator

from batch_pipelines.inputs.items import RawItem, too_long

_BLANK = b" \t\r"


def split_lines(chunks: Iterator[bytes], max_item_bytes: int) -> Iterator[RawItem]:
    r"""Split at `\n` only: other separators of Unicode may stand within JSON strings.

    Blank lines are no items.

    Args:
        chunks: the plain bytes.
        max_item_bytes: a longer line is an item with an error.
    """
    index = 0
    for number, line in enumerate(_lines(chunks, max_item_bytes), start=1):
        if line is None or len(line) > max_item_bytes:
            yield RawItem(index, number, None, too_long(max_item_bytes))
        elif data := line.strip(_BLANK):
            yield RawItem(index, number, data, None)
        else:
            continue
        index += 1


def _lines(chunks: Iterator[bytes], limit: int) -> Iterator[bytes | None]:
    """Lines without their ends; None for one that grew beyond the limit over several chunks."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        size += len(first)
        if size <= limit:
            parts.append(first)
        else:
            parts.clear()
        if not others:
            continue
        yield b"".join(parts) if size <= limit else None
        last = others.pop()
        yield from others
        parts, size = [last], len(last)
    if size:
        yield b"".join(parts) if size <= limit else None
