"""From the name of a model in a request to what an engine is told to load.

Nothing is downloaded or opened here; a name that no folder answers to is left to the engine, which asks the
model hub.
"""

from __future__ import annotations

import re
from pathlib import Path

from batch_pipelines.models.errors import ModelNotFound
from batch_pipelines.models.local_folders import folder_identity

__all__ = ["ModelNotFound", "model_identity", "resolve_model"]

_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_REMOTE = re.compile(r"(?:s3|gs|az|abfs|abfss)://[^/\s][^\s]*")


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

    Of a folder it is its `folder_identity`. Any other name stands for itself.

    Args:
        model: From `resolve_model`.
    """
    folder = Path(model)
    return folder_identity(folder) if folder.is_absolute() and folder.is_dir() else model
