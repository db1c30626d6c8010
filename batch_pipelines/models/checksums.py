"""Whether a file that was fetched is the one that was meant."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

__all__ = ["checksum_of"]

_BLOCK_BYTES = 2**20


def checksum_of(path: Path, kind: str) -> str:
    """The checksum of a file.

    Args:
        path: The file.
        kind: `md5`, `sha256`, or `git`: the name git gives to a file's content.

    Returns:
        The kind, a colon, and hexadecimal digits.
    """
    digest: Any
    if kind == "git":
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    else:
        digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return f"{kind}:{digest.hexdigest()}"
