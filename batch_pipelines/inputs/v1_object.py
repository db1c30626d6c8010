"""The V1 form: one object with the list `prompts` and, beside it, the parameters for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from batch_pipelines.inputs.items import InputError, RawItem
from batch_pipelines.inputs.json_array import array_items
from batch_pipelines.inputs.scanner import Scanner

PROMPTS = "prompts"


@dataclass(frozen=True, slots=True)
class V1Header:
    """Every field of a V1 object but its prompts."""

    fields: dict[str, object]


@dataclass(slots=True)
class FirstObject:
    """What a look at the first object of a file showed.

    Attributes:
        fields: bytes of each member but `prompts`, in order.
        has_prompts: whether there is a member `prompts` that is a list.
        problem: why it is no well-formed object; the file may still be JSON Lines with a broken first line.
        lines: how many lines it takes.
        alone: whether the file ends after it.
    """

    fields: dict[str, bytes] = field(default_factory=dict)
    has_prompts: bool = False
    problem: InputError | None = None
    lines: int = 1
    alone: bool = False


def look_at_first_object(scanner: Scanner, max_header_bytes: int) -> FirstObject:
    """Walk the members of the object whose opening brace `scanner.peek` showed.

    Args:
        scanner: over the file.
        max_header_bytes: what the fields beside the prompts may take together.
    """
    seen = FirstObject()
    first_line = scanner.line
    size = 0
    try:
        for name in _members(scanner):
            if name == PROMPTS and (seen.has_prompts or name in seen.fields):
                raise scanner.error("the object has two fields named 'prompts'")
            if name == PROMPTS and scanner.peek() == b"[":
                seen.has_prompts = True
                scanner.value(keep=False)
                continue
            value = scanner.value()
            if value.data is None:
                raise scanner.error(f"the field {name!r} cannot be read: {value.error}")
            size += len(name) + len(value.data)
            if size > max_header_bytes:
                raise scanner.error(f"the fields beside the prompts are longer than {max_header_bytes} bytes")
            seen.fields[name] = value.data
        seen.lines = scanner.line - first_line + 1
        seen.alone = not scanner.peek()
    except InputError as error:
        seen.problem = error
    return seen


def parse_header(fields: dict[str, bytes]) -> V1Header:
    """Parse the fields beside the prompts.

    Raises:
        InputError: one is not JSON.
    """
    parsed: dict[str, object] = {}
    for name, data in fields.items():
        try:
            parsed[name] = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InputError(f"the field {name!r} beside the prompts is not JSON: {error}") from error
    return V1Header(parsed)


def split_prompts(chunks: Iterator[bytes], max_item_bytes: int) -> Iterator[RawItem]:
    """The prompts of a V1 object, each as the JSON it is written in.

    Raises:
        InputError: the list's commas or brackets are wrong.
    """
    scanner = Scanner(chunks, max_item_bytes)
    scanner.peek()
    for name in _members(scanner):
        if name == PROMPTS:
            yield from array_items(scanner)
        else:
            scanner.value(keep=False)


def _members(scanner: Scanner) -> Iterator[str]:
    """The names of an object's members; the caller takes each value before it asks for the next name."""
    scanner.take()
    found = scanner.peek()
    while found != b"}":
        if found != b'"':
            raise scanner.error("the name of a field is expected")
        value = scanner.value()
        try:
            name = orjson.loads(value.data or b"")
        except orjson.JSONDecodeError as error:
            raise scanner.error(f"the name of a field cannot be read: {value.error or error}") from error
        if scanner.peek() != b":":
            raise scanner.error(f"':' is expected after {name!r}")
        scanner.take()
        if scanner.peek() in (b"", b",", b"]", b"}", b":"):
            raise scanner.error(f"the value of {name!r} is expected")
        yield name
        found = scanner.peek()
        if found == b",":
            scanner.take()
            found = scanner.peek()
            if found == b"}":
                raise scanner.error("the name of a field is expected after ','")
        elif found != b"}":
            raise scanner.error("',' or '}' is expected after a field")
    scanner.take()
