"""Compressed input: several members, truncation, damage, and files made to explode."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Iterator

import pytest
import zstandard

from batch_pipelines.inputs.compression import plain_chunks
from batch_pipelines.inputs.reader import InputError, open_input
from tests.unit.inputs.memory_files import DribblingFile, MemoryFiles

PLAIN = b"".join(b'{"n":%d,"text":"%d"}\n' % (n, n * 7919 % 104729) for n in range(20_000))
SKIPPABLE = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


def zstd(data: bytes, *, checksum: bool = False, size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size).compress(data)


def plain(data: bytes, most: int = 2**16) -> bytes:
    return b"".join(plain_chunks(DribblingFile(data, most)))


@pytest.mark.parametrize("most", [1, 5, 2**16])
@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(PLAIN),
        gzip.compress(PLAIN[:9]) + gzip.compress(b"") + gzip.compress(PLAIN[9:]),
        gzip.compress(PLAIN) + b"\0" * 512,
        zstd(PLAIN),
        zstd(PLAIN, checksum=True, size=False),
        SKIPPABLE + zstd(PLAIN[:9]) + SKIPPABLE + zstd(b"") + zstd(PLAIN[9:], checksum=True) + SKIPPABLE,
        PLAIN,
        b"\xef\xbb\xbf" + PLAIN,
        zstd(b"\xef\xbb\xbf" + PLAIN),
    ],
    ids=["gzip", "members", "padded", "zstd", "checksum", "frames", "plain", "bom", "bom-in-zstd"],
)
def test_plain_bytes_come_out(data: bytes, most: int) -> None:
    assert plain(data, most) == PLAIN


@pytest.mark.parametrize("compress", [gzip.compress, zstd, lambda data: zstd(data, checksum=True)])
def test_truncation_anywhere_is_noticed(compress: object) -> None:
    assert callable(compress)
    whole = compress(PLAIN[:2000])
    for length in range(4, len(whole)):
        with pytest.raises(InputError, match="ends early"):
            plain(whole[:length])
        with pytest.raises(InputError, match="ends early"):
            plain(whole + whole[:length])


@pytest.mark.parametrize("data", [gzip.compress(PLAIN), zstd(PLAIN, checksum=True)], ids=["gzip", "zstd"])
def test_damage_and_garbage_are_noticed(data: bytes) -> None:
    with pytest.raises(InputError, match="damaged"):
        plain(data[:-4] + b"????")
    with pytest.raises(InputError, match=r"damaged.*follows"):
        plain(data + b'{"a":1}')


def test_truncated_file_is_an_error_of_the_stream_with_the_name() -> None:
    with pytest.raises(InputError, match=r"^f\.gz: the compressed data ends early, after \d+ bytes"):
        list(open_input(MemoryFiles({"f.gz": gzip.compress(PLAIN)[:-10]}), "f.gz").items)


def gzip_bomb() -> bytes:
    out = io.BytesIO()
    with gzip.open(out, "wb", 9) as file:
        for _ in range(128):
            file.write(bytes(2**20))
    return out.getvalue()


def zstd_bomb() -> bytes:
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    parts = [compressor.compress(bytes(2**20)) for _ in range(1024)]
    return b"".join([*parts, compressor.flush()])


@pytest.mark.parametrize("make", [gzip_bomb, zstd_bomb])
def test_file_made_to_explode_takes_little_memory(make: object) -> None:
    assert callable(make)
    data = make()
    tracemalloc.start()
    try:
        chunks: Iterator[bytes] = plain_chunks(io.BytesIO(data))
        total = sum(len(chunk) for chunk in chunks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total >= 128 * 2**20
    assert peak < 8 * 2**20


def test_zstd_window_above_the_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(PLAIN) + compressor.flush()
    with pytest.raises(InputError, match="window of 268435456 bytes"):
        plain(data)
