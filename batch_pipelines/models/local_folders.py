"""A checkpoint in a local folder: what tells it from another one that may later have the same name."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["folder_identity"]

_SAMPLE_BYTES = 64 * 2**10


def folder_identity(folder: Path) -> str:
    """A digest of a folder's files: their names, sizes, beginnings and ends.

    Weights that were replaced differ there, and a folder of many gigabytes is not read.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            file.seek(max(0, size - _SAMPLE_BYTES))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
