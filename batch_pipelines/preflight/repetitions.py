"""Repetitions within repetitions of a pattern, found by reading it; within the helper.

Following a compiled grammar sees only the path it takes, and a pattern can hide its costly part in a branch
that is seldom taken. What makes a part costly is known: `(x{1,30} ?){1,50}` can be within any of 1,500 places
at once.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["MOST_PLACES", "nested_places", "patterns_in"]

MOST_PLACES: Final = 1000
_BOUNDS: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_MANY: Final = 10**9


def nested_places(pattern: str) -> int:
    """In how many places of repetitions within repetitions a text can be at once, at worst; 1 without any.

    Args:
        pattern: A regular expression; one that is none is another check's matter.
    """
    worst = 1
    levels: list[tuple[int, int]] = [(1, 0)]
    atom = (1, 0)  # places within it, and how deep its repetitions nest
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        width = 1
        if sign == "\\":
            atom, width = (1, 0), 2
        elif sign == "[":
            atom, width = (1, 0), _class_length(pattern, at)
        elif sign == "(":
            levels.append((1, 0))
            atom = (1, 0)
        elif sign == ")" and len(levels) > 1:
            atom = levels.pop()
        elif sign in "*+?" or (sign == "{" and (bounds := _BOUNDS.match(pattern, at)) is not None):
            spread = 2
            if sign == "{" and bounds is not None:
                spread, width = _spread(bounds), len(bounds[0])
            if spread > 1:
                atom = (min(atom[0] * spread, _MANY), atom[1] + 1)
        else:
            atom = (1, 0)
        levels[-1] = max(levels[-1], atom)
        if atom[1] > 1:
            worst = max(worst, atom[0])
        at += width
    return worst


def patterns_in(schema: Any) -> Iterator[str]:
    """The patterns of a JSON Schema, wherever they are."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            if isinstance(pattern := part.get("pattern"), str):
                yield pattern
            properties = part.get("patternProperties")
            yield from properties if isinstance(properties, Mapping) else ()
            left += part.values()
        elif isinstance(part, list):
            left += part


def _class_length(pattern: str, at: int) -> int:
    end = at + 1
    while end < len(pattern) and (pattern[end] != "]" or end == at + 1):
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - at


def _spread(bounds: re.Match[str]) -> int:
    least = int(bounds[1] or 0)
    if not bounds[2]:
        return 1
    return max(1, int(bounds[3]) - least + 1) if bounds[3] else 2
