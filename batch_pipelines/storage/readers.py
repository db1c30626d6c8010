"""Reading an object of any length with bounded memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

import obstore
from obstore.exceptions import PreconditionError

from batch_pipelines.storage.errors import StorageError, translated
from batch_pipelines.storage.locations import redact

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import GetOptions
    from obstore.store import ObjectStore

RANGE_BYTES = 8 * 2**20


class ChunkReader(io.RawIOBase):
    """A binary file over an iterator of chunks. Holds one chunk at a time."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        """Read from `chunks`; they are closed with the file where they can be."""
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, target: WriteableBuffer, /) -> int:
        """Fill as much of `target` as the current chunk can."""
        view = memoryview(target).cast("B")
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Close the iterator, and with it whatever connection it holds."""
        if not self.closed:
            self._rest = memoryview(b"")
            closer = getattr(self._chunks, "close", None)
            if closer is not None:
                closer()
        super().close()


def buffered(chunks: Iterator[bytes]) -> BinaryIO:
    """A buffered binary file over an iterator of chunks."""
    return cast(BinaryIO, io.BufferedReader(ChunkReader(chunks), buffer_size=2**17))


def object_ranges(store: ObjectStore, key: str, uri: str, size: int, etag: str | None) -> Iterator[bytes]:
    """The bytes of one version of an object, in order, one range request at a time.

    One long GET would run into the client's request timeout whenever the consumer is slower than the network.

    Raises:
        StorageError: the object was replaced or removed meanwhile, or the store failed.
    """
    for start in range(0, size, RANGE_BYTES):
        options: GetOptions = {"range": (start, min(start + RANGE_BYTES, size))}
        if etag is not None:
            options["if_match"] = etag
        with translated("read", uri):
            try:
                chunk = obstore.get(store, key, options=options).bytes().to_bytes()
            except PreconditionError as error:
                raise StorageError(f"cannot read {redact(uri)}: it was replaced while it was read") from error
        yield chunk
