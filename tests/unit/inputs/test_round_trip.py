"""Whatever the layout, the compression and the chunks: the same items come back, with their lines."""

from __future__ import annotations

import gzip
import json
import random

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_pipelines.inputs.reader import open_input
from tests.unit.inputs.memory_files import MemoryFiles

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=12)
awkward = st.sampled_from(
    ['"', "\\", '\\"', "[{", "}]", "},{", "\n", "\r\n", "\u2028", "\u0085", "", "é", "\\u0041"]
)
values = st.recursive(
    scalars | awkward,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | awkward, inner, max_size=3)
    ),
    max_leaves=8,
)
items_strategy = st.lists(st.dictionaries(st.text(max_size=4) | awkward, values, max_size=4), max_size=8)
blank = st.text(" \t\r\n", max_size=3)


def compress(data: bytes, kind: str, cut: int) -> bytes:
    """Compress in one piece or, where `cut` says so, in two members or frames."""
    pieces = [data] if cut == 0 else [data[: cut % (len(data) + 1)], data[cut % (len(data) + 1) :]]
    if kind == "gzip":
        return b"".join(gzip.compress(piece) for piece in pieces)
    if kind == "zstd":
        return b"".join(
            zstandard.ZstdCompressor(write_checksum=bool(cut % 2)).compress(piece) for piece in pieces
        )
    return data


def dump(item: object, style: int) -> str:
    if style == 0:
        return json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    if style == 1:
        return json.dumps(item)
    text = json.dumps(item, indent=style - 2)
    return text if style < 4 else text.replace("\n", "\r\n")


kinds = st.sampled_from(["none", "gzip", "zstd"])
chunk_sizes = st.integers(1, 64) | st.just(2**16)


@settings(deadline=None)  # a busy machine is not a failure
@given(items_strategy, st.data(), kinds, chunk_sizes, st.integers(0, 99), st.booleans())
def test_array_comes_back(
    items: list[object], data: st.DataObject, kind: str, chunk: int, cut: int, bom: bool
) -> None:
    text = data.draw(blank) + "[" + data.draw(blank)
    expected_lines = []
    for number, item in enumerate(items):
        text += ("," + data.draw(blank)) if number else ""
        expected_lines.append(text.count("\n") + 1)
        text += dump(item, data.draw(st.integers(0, 4))) + data.draw(blank)
    text += "]" + data.draw(blank)
    plain = b"\xef\xbb\xbf" * bom + text.encode()
    stream = open_input(MemoryFiles({"f": compress(plain, kind, cut)}, chunk), "f")
    found = list(stream.items)
    assert stream.header is None
    assert [orjson.loads(raw.data or b"") for raw in found] == items
    assert [raw.line for raw in found] == expected_lines
    assert [raw.index for raw in found] == list(range(len(items)))
    assert not any(b"\n" in (raw.data or b"") or b"\r" in (raw.data or b"") for raw in found)


@settings(deadline=None)  # a busy machine is not a failure
@given(items_strategy.filter(bool), st.data(), kinds, chunk_sizes, st.integers(0, 99), st.booleans())
def test_jsonl_comes_back(
    items: list[object], data: st.DataObject, kind: str, chunk: int, cut: int, bom: bool
) -> None:
    text = "\n" * data.draw(st.integers(0, 2))
    expected_lines = []
    for item in items:
        expected_lines.append(text.count("\n") + 1)
        text += dump(item, data.draw(st.integers(0, 1))) + data.draw(
            st.sampled_from(["\n", "\r\n", " \n\n", "\n \t\r\n"])
        )
    if data.draw(st.booleans()):
        text = text.rstrip("\r\n\t ")
    plain = b"\xef\xbb\xbf" * bom + text.encode()
    stream = open_input(MemoryFiles({"f": compress(plain, kind, cut)}, chunk), "f")
    found = list(stream.items)
    assert [orjson.loads(raw.data or b"") for raw in found] == items
    assert [raw.line for raw in found] == expected_lines
    assert [raw.index for raw in found] == list(range(len(items)))


@settings(deadline=None)  # a busy machine is not a failure
@given(
    st.lists(st.text(max_size=20) | awkward, max_size=6),
    st.dictionaries(
        st.text(max_size=4).filter(lambda name: name not in ("prompt", "prompts", "messages")),
        values,
        max_size=3,
    ),
    st.integers(0, 6),
    st.integers(0, 4),
    kinds,
    chunk_sizes,
)
def test_v1_object_comes_back(
    prompts: list[str], fields: dict[str, object], place: int, style: int, kind: str, chunk: int
) -> None:
    members = list(fields.items())
    members.insert(place, ("prompts", prompts))
    text = dump(dict(members), style)
    stream = open_input(MemoryFiles({"f": compress(text.encode(), kind, 0)}, chunk), "f")
    assert stream.header is not None
    assert stream.header.fields == fields
    found = list(stream.items)
    assert [orjson.loads(raw.data or b"") for raw in found] == prompts
    if style >= 2:
        start = text.index('"prompts": [')
        assert [raw.line for raw in found] == [
            text.count("\n", 0, start) + 2 + n for n in range(len(prompts))
        ]


@pytest.mark.parametrize("chunk", [1000, 2**18])
def test_item_of_many_chunks_comes_back_verbatim(chunk: int) -> None:
    text = random.Random(7).randbytes(400_000).hex() + '\\"[{'
    item = b'{"a": [[[[[[[["%s"]]]]]]]], "b": 1.0e+5}' % text.encode()
    for plain in (b"[%b, %b]" % (item, item), item + b"\n" + item):
        found = list(open_input(MemoryFiles({"f": plain}, chunk), "f").items)
        assert [raw.data for raw in found] == [item, item]
