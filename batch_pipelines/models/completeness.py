"""Whether a checkpoint's safetensors are all there and whole: an interrupted upload looks like a checkpoint.

Tensors are not read, only what the files say of their own length.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from pathlib import Path

import orjson

from batch_pipelines.models.errors import CheckpointRefused

__all__ = ["require_indexed_files", "require_whole_tensors"]

_INDEXES = (
    "model.safetensors.index.json",
    "consolidated.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
_MOST_HEADER_BYTES = 100_000_000  # the format's own limit
_SHOWN = 3


def require_indexed_files(folder: Path, weights: Collection[str], where: str) -> None:
    """Check that every file an index names is among the weights.

    Args:
        folder: Holds the index, if there is one.
        weights: Names of the weight files, here or still to come.
        where: The checkpoint's address, for messages.

    Raises:
        CheckpointRefused: Some are missing, or the index is no index.
    """
    for name in _INDEXES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            named = set(orjson.loads(path.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointRefused(f"{where}: {name} is not an index of weights: {error}") from error
        missing = sorted(named.difference(weights))
        # An index of another set of files than the chosen ones is fine.
        if missing and len(missing) < len(named):
            raise CheckpointRefused(
                f"{where} is incomplete: of the {len(named)} files in {name}, {len(missing)} are missing, "
                f"such as {', '.join(missing[:_SHOWN])}: was its upload interrupted?"
            )


def require_whole_tensors(folder: Path, weights: Iterable[str], where: str) -> None:
    """Check that every safetensors file is as long as its header says.

    Raises:
        CheckpointRefused: One is shorter or longer, or has no header.
    """
    for name in weights:
        if not name.endswith(".safetensors"):
            continue
        path = folder / name
        size, needed = path.stat().st_size, _needed_bytes(path)
        if needed != size:
            says = "has no safetensors header" if needed is None else f"needs {needed:,} by its own header"
            raise CheckpointRefused(f"{where}: {name} has {size:,} bytes and {says}: upload it again")


def _needed_bytes(path: Path) -> int | None:
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return None
        (length,) = struct.unpack("<Q", start)
        if length > _MOST_HEADER_BYTES:
            return None
        try:
            tensors = orjson.loads(file.read(length))
            ends = [entry["data_offsets"][1] for key, entry in tensors.items() if key != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None
    return 8 + int(length) + max(ends, default=0)
