"""Telling the forms apart, broken items, and files that cannot be trusted."""

from __future__ import annotations

import tracemalloc

import pytest

from batch_pipelines.inputs.reader import InputError, RawItem, V1Header, open_input
from tests.unit.inputs.memory_files import MemoryFiles

CHUNKS = [1, 2, 3, 7, 2**16]


def read(data: bytes, *, chunk: int = 2**16, limit: int = 2**20) -> tuple[V1Header | None, list[RawItem]]:
    files = MemoryFiles({"memory://t/f?sig=1": data}, chunk)
    stream = open_input(files, "memory://t/f?sig=1", max_item_bytes=limit)
    items = list(stream.items)
    assert all(file.closed for file in files.opened)
    return stream.header, items


def datas(data: bytes) -> list[bytes | None]:
    header, items = read(data)
    assert header is None
    return [item.data for item in items]


@pytest.mark.parametrize("data", [b"", b" \r\n\t\n ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty_file_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="holds no items"):
        read(data)


@pytest.mark.parametrize("data", [b"[]", b" [ \n ] \n", b"\xef\xbb\xbf[]"])
def test_empty_array_has_no_items(data: bytes) -> None:
    assert read(data) == (None, [])


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"<html>", "'<'"),
        (b'\n"a"', "'\"'"),
        (b"\xff\xfe{\0", r"'\\xff'"),
        (b"PK\x03\x04", "'P'"),
        (b"a,b\n", "'a'"),
    ],
)
def test_other_content_is_refused_with_what_was_found(data: bytes, shown: str) -> None:
    with pytest.raises(InputError, match=f"starts with {shown}.*expected is a JSON array, JSON Lines"):
        read(data)


def test_error_names_the_file_without_its_signature() -> None:
    with pytest.raises(InputError, match=r"^memory://t/f: ") as caught:
        read(b"")
    assert "sig" not in str(caught.value)


# JSON Lines


def test_only_a_newline_separates_lines() -> None:
    first = '{"a":"\u2028\u2029\u0085\x0b\x0c"}'.encode()
    assert datas(first + b'\r\n{"b":1}\rx\n{"c":2}') == [first, b'{"b":1}\rx', b'{"c":2}']


def test_broken_line_is_an_item_and_the_others_stay() -> None:
    assert datas(b'{"a":1}\n{"b":\n42\n\xff\n{"c":1}\n') == [b'{"a":1}', b'{"b":', b"42", b"\xff", b'{"c":1}']


@pytest.mark.parametrize(
    "first",
    [
        b'{"prompt": "x',
        b'{"prompt": "x"',
        b'{"prompt": "x",',
        b'{"messages": [{"role": "user"}',
        b"{",
        b"{]",
        b"{}}",
        b"{prompt: 1}",
        b"{'prompt': 'x'}",
        b'{"a" 1}',
        b'{"a":1,}',
        b'{"a":}',
        b'{"a":1} {"b":2}',
        b'{"a":1 "b":2}',
        b'{"\xff":1}',
    ],
)
@pytest.mark.parametrize("chunk", [1, 2**16])
def test_broken_first_line_is_an_item_like_any_other(first: bytes, chunk: int) -> None:
    rest = [b'{"prompt": "second"}', b'{"prompt": "third"}']
    _, items = read(b"\n".join([first, *rest]), chunk=chunk)
    assert [(item.line, item.data) for item in items] == [(1, first), (2, rest[0]), (3, rest[1])]


def test_lines_of_v1_like_objects_are_json_lines() -> None:
    line = b'{"prompts": ["a"]}'
    assert datas(line + b"\n" + line) == [line, line]
    broken = b'{"prompt": "b", "prompts": ["a"}'
    assert datas(broken + b"\n{}") == [broken, b"{}"]
    assert datas(b'{"prompts": ["a"], "prompt": "b"}') == [b'{"prompts": ["a"], "prompt": "b"}']


@pytest.mark.parametrize("chunk", CHUNKS)
def test_too_long_line_is_an_error_in_its_place(chunk: int) -> None:
    lines = [b'{"a":1}', b'{"a":"%s"}' % (b"x" * 100), b'{"b":1}', b'{"a":"%s"}' % (b"x" * 100)]
    _, items = read(b"\n".join(lines), chunk=chunk, limit=50)
    assert [(item.index, item.line, item.data) for item in items] == [
        (0, 1, lines[0]),
        (1, 2, None),
        (2, 3, lines[2]),
        (3, 4, None),
    ]
    assert "longer than 50 bytes" in str(items[1].error)


@pytest.mark.parametrize(("before", "after"), [(b'{"a":"', b'"}\n{}'), (b'[{"a":"', b'"},{}]')])
def test_too_long_item_does_not_take_memory(before: bytes, after: bytes) -> None:
    data = before + bytes(32 * 2**20).replace(b"\0", b"x") + after
    tracemalloc.start()
    try:
        _, items = read(data, limit=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [item.data for item in items] == [None, b"{}"]
    assert peak < 4 * 2**20


def test_line_of_exactly_the_limit_is_fine() -> None:
    line = b'{"a":"%s"}' % (b"x" * 42)
    for chunk in (1, 2**16):
        assert [item.data for item in read(line, chunk=chunk, limit=len(line))[1]] == [line]
        assert [item.data for item in read(b"[%s]" % line, chunk=chunk, limit=len(line))[1]] == [line]
        assert read(line, chunk=chunk, limit=len(line) - 1)[1][0].error
        assert read(b"[%s]" % line, chunk=chunk, limit=len(line) - 1)[1][0].error


@pytest.mark.parametrize("second", [b'{"b": 1}', b""])
def test_object_over_several_lines_is_refused_as_a_whole(second: bytes) -> None:
    with pytest.raises(InputError, match=r"first object takes 3 lines.*array"):
        read(b'{\n"messages": []\n}\n' + second)


# Arrays


@pytest.mark.parametrize("chunk", CHUNKS)
def test_elements_that_are_no_objects_are_items_too(chunk: int) -> None:
    _, items = read(b'[1, -2.5e3 ,"a,]\\"", null,[1,[2]], NaN, {"a":1},\'x\']', chunk=chunk)
    expected = [b"1", b"-2.5e3", b'"a,]\\""', b"null", b"[1,[2]]", b"NaN", b'{"a":1}', b"'x'"]
    assert [item.data for item in items] == expected


@pytest.mark.parametrize("chunk", CHUNKS)
def test_broken_element_with_paired_brackets_does_not_spoil_the_rest(chunk: int) -> None:
    _, items = read(b'[{"a" 1,,}, {"b": nope}, {"c": \xff}, {"d":1}]', chunk=chunk)
    assert [item.data for item in items] == [b'{"a" 1,,}', b'{"b": nope}', b'{"c": \xff}', b'{"d":1}']


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"[{},\n,{}]", 2, "an item is expected"),
        (b"[,{}]", 1, "an item is expected"),
        (b"[{},\n\n]", 3, "an item is expected"),
        (b"[:]", 1, "an item is expected"),
        (b"[{}\n{}]", 2, "a comma is missing"),
        (b"[1 2]", 1, "a comma is missing"),
        (b"[{}}", 1, "a comma is missing"),
        (b"[", 1, "not closed.*after 0 items"),
        (b"[{},\n{}\n", 3, "not closed.*after 2 items"),
        (b"[{},", 1, "not closed.*after 1 items"),
        (b'[{},\n{"a":\n"b', 3, "ends within the item that starts on line 2"),
        (b'[{"a":[1}]', 1, r"'}' where ']' is expected, in the item that starts on line 1"),
        (b'[{"a":1]]', 1, "']' where '}' is expected"),
        (b"[{}]\n]", 2, "something follows"),
        (b"[{}]{}", 1, "something follows"),
        (b"[][]", 1, "something follows"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 2**16])
def test_array_that_cannot_be_trusted_is_refused(data: bytes, line: int, reason: str, chunk: int) -> None:
    with pytest.raises(InputError, match=rf"line {line} \(byte \d+\): .*{reason}"):
        read(data, chunk=chunk)


def test_error_counts_bytes() -> None:
    for chunk in CHUNKS:
        with pytest.raises(InputError, match=r"line 2 \(byte 6\)"):
            read(b"[{},\n ,]", chunk=chunk)


def test_items_before_the_fault_are_given() -> None:
    stream = open_input(MemoryFiles({"f": b"[{},{}"}), "f")
    assert next(stream.items).data == b"{}"
    assert next(stream.items).data == b"{}"
    with pytest.raises(InputError):
        next(stream.items)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_too_long_element_is_an_error_in_its_place(chunk: int) -> None:
    long = b'{"a":\n["%s"]}' % (b'\\"]' * 50)
    _, items = read(b'[{"a":1},%s,\n"%s",%s,{"b":1}]' % (long, b"x" * 60, b"1" * 60), chunk=chunk, limit=50)
    assert [(item.line, item.data) for item in items] == [
        (1, b'{"a":1}'),
        (1, None),
        (3, None),
        (3, None),
        (3, b'{"b":1}'),
    ]
    assert all("longer than 50 bytes" in str(item.error) for item in items[1:4])


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"]}" * (depth // 2)


@pytest.mark.parametrize("chunk", [1, 100, 2**16])
def test_too_deep_element_is_an_error_in_its_place(chunk: int) -> None:
    _, items = read(b"[%s,%s,{},%s]" % (nested(200), nested(202), nested(100_000)), chunk=chunk)
    assert [item.data for item in items] == [nested(200), None, b"{}", None]
    assert "deeper than 200 levels" in str(items[1].error)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_line_break_within_a_string_is_an_error_not_a_blank(chunk: int) -> None:
    _, items = read(b'[{"a":"b\nc"}, {\r\n"a":\r\n"bc"}, {"a\r":1}]', chunk=chunk)
    assert [item.data for item in items] == [None, b'{  "a":  "bc"}', None]
    assert "line break within a string" in str(items[0].error)
    assert [item.line for item in items] == [1, 2, 4]


# V1


@pytest.mark.parametrize("chunk", CHUNKS)
def test_v1_object_with_any_order_and_layout(chunk: int) -> None:
    data = (
        b'\n\n{ "max_new_tokens" : 5,\n "prompts"\n:\n[ "a",\n "b\\n]" ] ,'
        b' "x": {"prompts": ["no"]}, "n": null\n}\n'
    )
    header, items = read(data, chunk=chunk)
    assert header == V1Header({"max_new_tokens": 5, "x": {"prompts": ["no"]}, "n": None})
    assert items == [RawItem(0, 6, b'"a"', None), RawItem(1, 7, b'"b\\n]"', None)]


def test_v1_object_on_one_line_and_empty() -> None:
    assert read(b'{"prompts":["a",7,{}]}')[1] == [
        RawItem(0, 1, b'"a"', None),
        RawItem(1, 1, b"7", None),
        RawItem(2, 1, b"{}", None),
    ]
    assert read(b'{"prompts":[]}') == (V1Header({}), [])


def test_long_prompt_is_an_error_in_its_place_though_the_list_is_longer() -> None:
    prompts = [b'"%d"' % n for n in range(100)]
    prompts[3] = b'"%s"' % (b"x" * 100)
    header, items = read(b'{"n":1,"prompts":[%s]}' % b",".join(prompts), limit=50)
    assert header == V1Header({"n": 1})
    assert [item.index for item in items if item.data is None] == [3]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"prompts": ["a",\n"b"', r"line 2 \(byte \d+\): the file ends within"),
        (b'{"prompts": ["a"}', r"'}' where '\]' is expected"),
        (b'{"prompts": ["a"], "prompts": []}', "two fields named 'prompts'"),
        (b'{"prompts": ["a"],\n "n" 1}', "line 2"),
        (b'{"prompts": ["a"], "n": nope}', "the field 'n' beside the prompts is not JSON"),
        (b'{"prompts": ["a"],\n\n "n": "%s"}' % (b"x" * 2**20), "line 3.*the field 'n' cannot be read"),
        (b'{\n"prompts": "a"}', "not a list"),
        (b'{"prompts": ["a"],\n "n": 1}\n{}', "first object takes 2 lines"),
        (b'{"prompts": ["a",,"b"]}', "an item is expected"),
    ],
)
def test_broken_v1_object_is_refused_as_a_whole(data: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read(data)
