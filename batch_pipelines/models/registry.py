"""From the name of a model in a request to what an engine is told to load.

Nothing is downloaded or opened here; a name that no folder answers to is left to the engine, which asks the
model hub.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_SAMPLE_BYTES = 64 * 2**10
_REMOTE = re.compile(r"(?:s3|gs|az|abfs|abfss)://[^/\s][^\s]*")


class ModelNotFound(ValueError):
    """A model cannot be found where the request says it is, or its name cannot be one."""


def resolve_model(model: str, checkpoint_path: str | None, *, models_dir: Path) -> str:
    """Return what to load: the checkpoint, the folder of `models_dir` with that name, or the name itself.

    A checkpoint in object storage is returned as it is; vLLM streams it with `load_format: runai_streamer`.

    Raises:
        ModelNotFound: The checkpoint's folder does not exist, or the model's name is neither a plain name nor
            `owner/name` (so that no name leads to a folder outside `models_dir`).
    """
    if checkpoint_path is not None:
        if _REMOTE.fullmatch(checkpoint_path):
            return checkpoint_path
        folder = Path(checkpoint_path.removeprefix("file://"))
        if not folder.is_absolute() or not folder.is_dir():
            raise ModelNotFound(
                f"checkpoint_path {checkpoint_path!r} is not an existing absolute folder or an object prefix"
            )
        return str(folder)
    if not _HUB_NAME.fullmatch(model) or ".." in model:
        raise ModelNotFound(f"{model!r} is not the name of a model: expected 'name' or 'owner/name'")
    folder = models_dir.absolute() / model
    return str(folder) if (folder / "config.json").is_file() else model


def model_identity(model: str) -> str:
    """Return what tells this model from another one that may later have the same name.

    Of a folder it is a digest of its files' names, sizes, beginnings and ends: weights that were replaced
    differ there, and a folder of many gigabytes is not read. Any other name stands for itself.

    Args:
        model: From `resolve_model`.
    """
    folder = Path(model)
    if not folder.is_absolute() or not folder.is_dir():
        return model
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            file.seek(max(0, size - _SAMPLE_BYTES))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
