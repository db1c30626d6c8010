"""Plain bytes out of a file that may be compressed with gzip or zstd, told by its first bytes.

Output comes in small chunks however far the input expands, so a file made to explode costs time, not memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from batch_pipelines.inputs.items import InputError

CHUNK_BYTES = 2**18
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # after one byte between 0x50 and 0x5f
_BOM = b"\xef\xbb\xbf"
_WINDOW_LIMIT = 2**27  # what the zstd tool itself accepts unless told otherwise
_HEADER_LIMIT = 18
_RLE, _RESERVED = 1, 3


def plain_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Decompress a file and drop a UTF-8 byte order mark at its start. Chunks are not empty.

    Raises:
        InputError: the compressed data is damaged or ends early.
    """
    source = _Source(file)
    head = source.peek(4)
    if head.startswith(_GZIP):
        chunks = _gzip(source)
    elif _is_zstd(head):
        chunks = _zstd(source)
    else:
        chunks = iter(source.some, b"")
    start = b""
    for chunk in chunks:
        start += chunk
        if len(start) >= len(_BOM):
            break
    if start := start.removeprefix(_BOM):
        yield start
    yield from filter(None, chunks)


class _Source:
    """A file with lookahead and exact reads; the file may give less than it is asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ahead = b""
        self.offset = 0

    def peek(self, count: int) -> bytes:
        """The next `count` bytes without taking them; fewer at the end."""
        while len(self._ahead) < count and (more := self._file.read(CHUNK_BYTES)):
            self._ahead += more
        return self._ahead[:count]

    def some(self) -> bytes:
        """Whatever comes next; empty at the end."""
        data = self._ahead or self._file.read(CHUNK_BYTES)
        self._ahead = b""
        self.offset += len(data)
        return data

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes.

        Raises:
            InputError: the file ends before.
        """
        data = self.peek(count)
        if len(data) < count:
            raise _truncated(self.offset + len(data))
        self._ahead = self._ahead[count:]
        self.offset += count
        return data

    def push_back(self, data: bytes) -> None:
        """Return bytes that were taken in excess."""
        self._ahead = data + self._ahead
        self.offset -= len(data)


def _truncated(offset: int) -> InputError:
    return InputError(
        f"the compressed data ends early, after {offset} bytes: the upload was cut off; upload it again"
    )


def _damaged(offset: int, reason: object) -> InputError:
    return InputError(
        f"the compressed data is damaged near byte {offset} ({reason}); compress and upload it again"
    )


def _gzip(source: _Source) -> Iterator[bytes]:
    """Members one after the other; zeros after the last are padding."""
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            data = member.unconsumed_tail or source.some()
            if not data:
                raise _truncated(source.offset)
            try:
                yield member.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise _damaged(source.offset, error) from error
        source.push_back(member.unused_data)
        while source.peek(1) == b"\0":
            source.exactly(1)
        if not source.peek(1):
            return
        if source.peek(3) != _GZIP:
            raise _damaged(source.offset, "something that is not gzip follows")


def _is_zstd(head: bytes) -> bool:
    return head == _ZSTD or (head[1:] == _SKIPPABLE and 0x50 <= head[0] <= 0x5F)


def _zstd(source: _Source) -> Iterator[bytes]:
    """Frames one after the other, each fed to the decoder block by block.

    The decoder has no bound on its output, and its file reader does not notice a truncated frame. A block
    expands to 128 KiB at most, and walking the blocks shows exactly where a frame ends.
    """
    while head := source.peek(4):
        if not _is_zstd(head):
            raise _damaged(source.offset, "something that is not zstd follows")
        if head != _ZSTD:
            source.exactly(4)
            _skip(source, int.from_bytes(source.exactly(4), "little"))
            continue
        try:
            yield from _frame(source)
        except zstandard.ZstdError as error:
            raise _damaged(source.offset, error) from error


def _frame(source: _Source) -> Iterator[bytes]:
    head = source.peek(_HEADER_LIMIT)
    try:
        parameters = zstandard.get_frame_parameters(head)
    except zstandard.ZstdError:
        if len(head) < _HEADER_LIMIT:
            raise _truncated(source.offset + len(head)) from None
        raise
    if parameters.window_size > _WINDOW_LIMIT:
        raise InputError(
            f"the zstd data needs a window of {parameters.window_size} bytes; the limit is {_WINDOW_LIMIT}: "
            "compress it without --ultra or --long above 27"
        )
    decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_LIMIT).decompressobj()
    yield decoder.decompress(source.exactly(zstandard.frame_header_size(head)))
    last = False
    while not last:
        block = source.exactly(3)
        fields = int.from_bytes(block, "little")
        last, kind, size = bool(fields & 1), fields >> 1 & 3, fields >> 3
        if kind == _RESERVED:
            raise _damaged(source.offset, "unknown kind of block")
        yield decoder.decompress(block + source.exactly(1 if kind == _RLE else size))
    if parameters.has_checksum:
        yield decoder.decompress(source.exactly(4))


def _skip(source: _Source, count: int) -> None:
    while count:
        step = min(count, CHUNK_BYTES)
        source.exactly(step)
        count -= step
