"""What only local files need: links resolved before they are judged, folders walked without following."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from batch_pipelines.storage.locations import InvalidPath, Location

# The local client writes to '<name>#<number>' and renames; a crash can leave such a file behind, and it is no
# object.
_TEMPORARY = re.compile(r"#\d+\Z")


def resolve_links(location: Location) -> Location:
    """Where a local location really is: the links of its longest existing part followed.

    Locations elsewhere are returned as they are.

    Raises:
        InvalidPath: links form a loop.
    """
    if location.scheme != "file":
        return location
    try:
        return replace(location, key=str(location.path.resolve()).strip("/"))
    except (RuntimeError, OSError) as error:
        raise InvalidPath(f"{location.uri!r} cannot be resolved: {error}") from error


def walk_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file and link under a folder with its own status, in the order of their keys.

    Linked folders are not entered. Where a link leads is for the caller to judge.
    """
    found = []
    for directory, _, names in os.walk(folder, followlinks=False):
        found += [Path(directory) / name for name in names if not _TEMPORARY.search(name)]
    for path in sorted(found, key=os.fsencode):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # removed meanwhile
        yield path, status
