"""Writing an object of any length with bounded memory, completely or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import obstore

from batch_pipelines.storage.errors import translated

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PART_BYTES = 16 * 2**20  # S3 allows 10,000 parts: objects up to 156 GiB
JOIN_BYTES = 2**20  # small chunks are joined to this before they cross into the client
_PARTS_IN_FLIGHT = 4


def write_parts(store: ObjectStore, key: str, uri: str, chunks: Iterable[bytes]) -> int:
    """Write chunks as one object; what `chunks` raises passes through as it is, and nothing is left then.

    The client's `put` takes an iterator too, but runs it inside its own event loop: an iterator that reads
    from a store, as a merge does, would panic there. Its writer is driven from here, and aborts on an error.

    Returns:
        Bytes written.

    Raises:
        StorageError: the store failed.
    """
    source = _Source(chunks)
    total = 0
    try:
        with obstore.open_writer(
            store, key, buffer_size=PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
        ) as writer:
            for block in source:
                total += len(block)
                writer.write(block)
    except BaseException as error:
        if error is source.error or not isinstance(error, Exception):
            raise
        with translated("write", uri):
            raise
    return total


class _Source:
    """Joins small chunks, and remembers what their maker raised, to tell it from the store's errors."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.error: BaseException | None = None
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        pending: list[bytes] = []
        size = 0
        try:
            for chunk in self._chunks:
                pending.append(chunk)
                size += len(chunk)
                if size >= JOIN_BYTES:
                    yield b"".join(pending)
                    pending, size = [], 0
        except BaseException as error:
            self.error = error
            raise
        if pending:
            yield b"".join(pending)
