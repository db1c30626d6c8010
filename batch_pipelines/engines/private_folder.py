"""A folder for one start of an engine: its working directory, and the place of its sockets."""

import os
import tempfile
from pathlib import Path

__all__ = ["private_folder"]

# A socket's path may have 107 bytes, and vLLM puts sockets with names of 36 beside ours.
_LONGEST = 107 - 1 - 36
_SHORT = "/tmp"  # noqa: S108 - only ever the place of a folder made for us alone


def private_folder() -> Path:
    """Make a folder that only this user can enter, with a path short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    if len(os.fsencode(folder)) > _LONGEST:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="engine-", dir=_SHORT))
    return folder
