"""A limit on how deep JSON may nest.

Parsers differ in how much nesting they take and some of them recurse; an engine given more than its own
parser takes may answer with a server error, or die.
"""

from typing import Any, Final

__all__ = ["MAX_DEPTH", "nests_deeper", "too_deep"]

MAX_DEPTH: Final = 200


def too_deep(data: bytes, value: Any) -> bool:
    """Whether parsed JSON nests deeper than `MAX_DEPTH`.

    Args:
        data: The JSON text; one without that many brackets is not looked at further.
        value: What it was parsed to.
    """
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    return nests_deeper(value, MAX_DEPTH)


def nests_deeper(value: Any, limit: int) -> bool:
    """Whether objects and arrays nest more than `limit` levels deep; without recursion."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
