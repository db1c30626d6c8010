"""A JSON array: items between commas, over as many lines as they like."""

from __future__ import annotations

from collections.abc import Iterator

from batch_pipelines.inputs.items import RawItem
from batch_pipelines.inputs.scanner import Scanner


def split_array(chunks: Iterator[bytes], max_item_bytes: int) -> Iterator[RawItem]:
    """The items of a file that is one array.

    Args:
        chunks: the plain bytes; the first that is not blank is the opening bracket.
        max_item_bytes: a longer item is one with an error.

    Raises:
        InputError: the array is not closed, its commas or brackets are wrong, or something follows it.
    """
    scanner = Scanner(chunks, max_item_bytes)
    scanner.peek()
    yield from array_items(scanner)
    if scanner.peek():
        raise scanner.error(
            "something follows the array's closing bracket; remove it, or check for a bracket too many"
        )


def array_items(scanner: Scanner) -> Iterator[RawItem]:
    """The items of the array whose opening bracket `scanner.peek` showed; its end is taken too.

    Raises:
        InputError: as for `split_array`.
    """
    scanner.take()
    if scanner.peek() == b"]":
        scanner.take()
        return
    index = 0
    while True:
        found = scanner.peek()
        if not found:
            raise _not_closed(scanner, index)
        if found in b",]}:":
            raise scanner.error(f"{found.decode()!r} where an item is expected; check for a comma too many")
        line = scanner.line
        value = scanner.value()
        yield RawItem(index, line, value.data, value.error)
        index += 1
        found = scanner.peek()
        if not found:
            raise _not_closed(scanner, index)
        if found not in b",]":
            raise scanner.error("a comma is missing between two items")
        scanner.take()
        if found == b"]":
            return


def _not_closed(scanner: Scanner, count: int) -> Exception:
    return scanner.error(
        f"the array is not closed: the file ends after {count} items; it is cut off, upload it again"
    )
