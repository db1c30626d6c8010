"""Finds where JSON values start and end in a stream of chunks, without parsing them.

Belongs here: bytes, brackets, strings, lines. Does not belong here: what the values are parts of (array,
object).

Only whole chunks are looked at, by patterns that run in C; what a value has so far when its chunk ends is put
aside, so that no byte is scanned twice and a value above the limit is dropped while it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from batch_pipelines.inputs.items import InputError, too_long

DEPTH_LIMIT = 200
_BLANK = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb'[^ \t\r\n,:\[\]{}"]*+')
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
# Everything up to the next bracket, or up to a string that does not end in this chunk.
_UP_TO_BRACKET = re.compile(rb'[^"{}\[\]]*+(?:' + _STRING + rb'[^"{}\[\]]*+)*+', re.DOTALL)


def _shallow(levels: int) -> bytes:
    """A pattern of a whole string, object or array with at most so many levels of paired brackets."""
    if not levels:
        return _STRING
    body = rb'[^"{}\[\]]*+(?:' + _shallow(levels - 1) + rb'[^"{}\[\]]*+)*+'
    return rb"(?:" + _STRING + rb"|\{" + body + rb"\}|\[" + body + rb"\])"


# Twice as fast as the walk over brackets, and nearly every item is so shallow. A level doubles the pattern.
_WHOLE_VALUE = re.compile(_shallow(5), re.DOTALL)
_QUOTE = ord('"')
_CLOSER = {ord("{"): ord("}"), ord("["): ord("]")}
_NEWLINE_TO_BLANK = bytes.maketrans(b"\r\n", b"  ")


class Value(NamedTuple):
    """The bytes of a value on one line, or why it cannot be used."""

    data: bytes | None
    error: str | None


class Scanner:
    """Reads values and the marks between them, one after the other."""

    def __init__(self, chunks: Iterator[bytes], max_value_bytes: int) -> None:
        """Scan `chunks`; values above `max_value_bytes` are skipped and become errors."""
        self._chunks = chunks
        self._limit = max_value_bytes
        self._chunk = b""
        self._at = 0
        self._bytes_before = 0
        self._line = 1
        self._lines_counted_to = 0

    @property
    def line(self) -> int:
        """The line of the next byte, from 1."""
        self._line += self._chunk.count(b"\n", self._lines_counted_to, self._at)
        self._lines_counted_to = self._at
        return self._line

    def peek(self) -> bytes:
        """The next byte that is not blank, not taken; empty at the end."""
        while True:
            following = self._chunk[self._at : self._at + 1]
            if following > b" ":
                return following
            self._at = _end(_BLANK, self._chunk, self._at)
            if self._at < len(self._chunk):
                return self._chunk[self._at : self._at + 1]
            if not self._next_chunk():
                return b""

    def take(self) -> None:
        """Take the byte that `peek` showed."""
        self._at += 1

    def error(self, message: str) -> InputError:
        """An error at the place reached."""
        return InputError(f"line {self.line} (byte {self._bytes_before + self._at}): {message}")

    def value(self, *, keep: bool = True) -> Value:
        """The value that starts at the byte that `peek` showed.

        Args:
            keep: False to step over it; it then counts as too long.

        Raises:
            InputError: it never ends, or its brackets do not pair, so nothing after it can be trusted.
        """
        if keep and (found := _WHOLE_VALUE.match(self._chunk, self._at)):
            data = found[0]
            self._at += len(data)
            return _on_one_line(data) if len(data) <= self._limit else Value(None, too_long(self._limit))
        first = self._chunk[self._at]
        kept = _Kept(self._limit if keep else 0)
        if first in _CLOSER or first == _QUOTE:
            return self._bracketed(kept, first == _QUOTE)
        return self._scalar(kept)

    def _next_chunk(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._at = len(self._chunk)
        _ = self.line
        self._bytes_before += len(self._chunk)
        self._chunk, self._at, self._lines_counted_to = chunk, 0, 0
        return True

    def _scalar(self, kept: _Kept) -> Value:
        while True:
            start = self._at
            self._at = _end(_SCALAR, self._chunk, start)
            if self._at < len(self._chunk):
                return kept.finish(self._chunk[start : self._at])
            kept.add(self._chunk[start:])
            if not self._next_chunk():
                return kept.finish(b"")

    def _bracketed(self, kept: _Kept, in_string: bool) -> Value:
        """An object, an array or a string (which is what `in_string` says it starts with)."""
        first_line = self.line
        chunk, start, at = self._chunk, self._at, self._at + in_string
        depth = 0
        open_brackets: list[int] = []
        while True:
            if in_string:
                at = _end(_REST_OF_STRING, chunk, at)
                if at < len(chunk) and chunk[at] == _QUOTE:
                    in_string = False
                    at += 1
                    if not depth:
                        break
                elif at < len(chunk):
                    at += 2  # a backslash ends the chunk: what it escapes is the first byte of the next
            else:
                at = _end(_UP_TO_BRACKET, chunk, at)
                if at < len(chunk):
                    byte = chunk[at]
                    at += 1
                    if byte in _CLOSER:
                        depth += 1
                        if depth <= DEPTH_LIMIT:
                            open_brackets.append(byte)
                        else:
                            kept.refuse(f"the item is nested deeper than {DEPTH_LIMIT} levels")
                    elif byte == _QUOTE:
                        in_string = True
                    else:
                        if depth <= DEPTH_LIMIT and byte != (closer := _CLOSER[open_brackets.pop()]):
                            self._at = at - 1
                            raise self._unpaired(byte, closer, first_line)
                        depth -= 1
                        if not depth:
                            break
            if at >= len(chunk):
                kept.add(chunk[start:])
                carry = at - len(chunk)
                if not self._next_chunk():
                    self._at = len(chunk)
                    raise self._unfinished(first_line)
                chunk, start, at = self._chunk, 0, carry
        self._at = at
        return kept.finish(chunk[start:at])

    def _unpaired(self, found: int, expected: int, first_line: int) -> InputError:
        return self.error(
            f"{chr(found)!r} where {chr(expected)!r} is expected, in the item that starts on "
            f"line {first_line}; correct that item"
        )

    def _unfinished(self, first_line: int) -> InputError:
        return self.error(
            f"the file ends within the item that starts on line {first_line}: the file is cut off, "
            "or a bracket or a quotation mark of that item is missing"
        )


class _Kept:
    """The parts of a value, until it proves to be of no use."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._error: str | None = None

    def refuse(self, error: str) -> None:
        self._error = self._error or error
        self._parts.clear()

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self.refuse(too_long(self._limit))
        if self._error is None:
            self._parts.append(part)

    def finish(self, part: bytes) -> Value:
        self.add(part)
        if self._error is not None:
            return Value(None, self._error)
        return _on_one_line(b"".join(self._parts) if len(self._parts) > 1 else part)


def _on_one_line(data: bytes) -> Value:
    """Line breaks between tokens become blanks; one within a string is not JSON, a blank would hide it."""
    if b"\n" not in data and b"\r" not in data:
        return Value(data, None)
    outside = _STRINGS.sub(b"", data)
    if any(outside.count(mark) != data.count(mark) for mark in (b"\n", b"\r")):
        return Value(None, "the item has a line break within a string; JSON writes it as \\n")
    return Value(data.translate(_NEWLINE_TO_BLANK), None)


def _end(pattern: re.Pattern[bytes], chunk: bytes, start: int) -> int:
    found = pattern.match(chunk, start)
    return found.end() if found else start  # each pattern here also matches the empty string
