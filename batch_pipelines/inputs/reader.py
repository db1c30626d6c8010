r"""Opens an input file of any accepted form as a stream of raw items.

The form is told by the first byte that is not blank:

- `[`: one JSON array.
- `{`: the first object is walked, without parsing its values.
  - It is whole, nothing follows it, it has a list `prompts` and neither `prompt` nor `messages`: a V1 object.
  - It is not well-formed after its list `prompts` began: a broken V1 object, refused.
  - It is whole but takes several lines: neither JSON Lines nor V1, refused.
  - Anything else: JSON Lines. So a broken first line is an item with an error like any other broken line.

The file is opened once to tell the form and once to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from batch_pipelines.inputs.compression import plain_chunks
from batch_pipelines.inputs.items import InputError, RawItem
from batch_pipelines.inputs.json_array import split_array
from batch_pipelines.inputs.jsonl import split_lines
from batch_pipelines.inputs.scanner import Scanner
from batch_pipelines.inputs.v1_object import (
    PROMPTS,
    V1Header,
    look_at_first_object,
    parse_header,
    split_prompts,
)
from batch_pipelines.storage.locations import redact

__all__ = ["InputError", "InputStream", "ObjectReader", "RawItem", "V1Header", "open_input"]

MAX_ITEM_BYTES = 16 * 2**20
_EXPECTED = "expected is a JSON array, JSON Lines or one object with 'prompts', plain or in gzip or zstd"

_Splitter = Callable[[Iterator[bytes], int], Iterator[RawItem]]


class ObjectReader(Protocol):
    """What reading needs of a storage."""

    def open_reader(self, uri: str) -> BinaryIO:
        """The object as a binary file."""


@dataclass(frozen=True, slots=True)
class InputStream:
    """An open input.

    Attributes:
        header: the fields beside the prompts of a V1 object; None for the other forms.
        items: the items in file order, once. For V1 each item's data is the JSON of one prompt.
            Raises InputError where the rest of the file cannot be trusted, and the storage's errors.
    """

    header: V1Header | None
    items: Iterator[RawItem]


def open_input(storage: ObjectReader, uri: str, *, max_item_bytes: int = MAX_ITEM_BYTES) -> InputStream:
    """Open an input file; memory is bounded by `max_item_bytes` and the size of a chunk.

    Raises:
        InputError: the file is empty or not of an accepted form.
        StorageError: the file cannot be read.
    """
    with _naming(uri), closing(storage.open_reader(uri)) as file:
        header, splitter = _recognize(plain_chunks(file), max_item_bytes)
    return InputStream(header, _items(storage, uri, splitter, max_item_bytes))


def _items(storage: ObjectReader, uri: str, splitter: _Splitter, max_item_bytes: int) -> Iterator[RawItem]:
    with _naming(uri), closing(storage.open_reader(uri)) as file:
        yield from splitter(plain_chunks(file), max_item_bytes)


def _recognize(chunks: Iterator[bytes], max_item_bytes: int) -> tuple[V1Header | None, _Splitter]:
    scanner = Scanner(chunks, max_item_bytes)
    start = scanner.peek()
    if not start:
        raise InputError(f"the file holds no items: it is empty or blank; {_EXPECTED}")
    if start == b"[":
        return None, split_array
    if start != b"{":
        raise scanner.error(f"the file starts with {str(start)[1:]}; {_EXPECTED}, in UTF-8")
    first = look_at_first_object(scanner, max_item_bytes)
    is_item = bool(first.fields.keys() & {"prompt", "messages"})
    if first.problem is not None:
        if first.has_prompts and not is_item:
            raise InputError(f"the object with 'prompts' is broken: {first.problem}")
        return None, split_lines
    if first.alone and first.has_prompts and not is_item:
        return parse_header(first.fields), split_prompts
    if first.lines > 1 and PROMPTS in first.fields:
        raise InputError("'prompts' of the object is not a list")
    if first.lines > 1:
        raise InputError(
            f"the first object takes {first.lines} lines: in JSON Lines an item stands on one line; "
            "put each on one line, or all into an array"
        )
    return None, split_lines


@contextmanager
def _naming(uri: str) -> Iterator[None]:
    """Put the file's name in front of an error."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{redact(uri)}: {error}") from error
