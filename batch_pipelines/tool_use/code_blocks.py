"""The marks by which a text calls the tool and gets its output: pure functions on text.

A call is a block of Python, from "```python" to the closing fence and its line end. Its output follows, up to
a line of ">>>".
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["CALL", "Call", "find_call", "output_block", "shorten"]

CALL: Final = "\n```\n"
"""Ends a block of code; generation stops there."""

_CODE: Final = "```python\n"
_OUTPUT_END: Final = "\n>>>\n"


@dataclass(frozen=True, slots=True)
class Call:
    """A finished block of Python in a text.

    Attributes:
        code: What is in the block.
        end: Where the text goes on behind it.
    """

    code: str
    end: int


def find_call(text: str) -> Call | None:
    """The first finished block of Python in a text, if there is one."""
    opening = text.find(_CODE)
    if opening < 0:
        return None
    start = opening + len(_CODE)
    closing = text.find(CALL, start - 1)  # an empty block has one line end, not two
    if closing < 0:
        return None
    return Call(code=text[start:closing], end=closing + len(CALL))


def output_block(output: str) -> str:
    """What is put behind a call: the code's output and the mark that ends it."""
    return output.removesuffix("\n") + _OUTPUT_END


def shorten(text: str, limit: int) -> str:
    """A text of about `limit` characters at most; what is left out of the middle of a longer one is told."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    head, tail = limit // 2, limit - limit // 2
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[-tail:]}"
