"""Random ends of names, as Kubernetes makes them."""

from __future__ import annotations

import random

__all__ = ["generated_name", "random_suffix"]

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST_BASE = 63 - _SUFFIX
_RANDOM = random.SystemRandom()


def random_suffix(length: int = _SUFFIX) -> str:
    """Return letters that make no words."""
    return "".join(_RANDOM.choices(_ALPHABET, k=length))


def generated_name(base: str) -> str:
    """Return a name for metadata.generateName; a long base is cut."""
    return base[:_LONGEST_BASE] + random_suffix()
