"""What a process has started, and how much memory it all uses."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["children_of", "lists_children", "resident_bytes"]

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def _descendants(pid: int) -> Iterator[int]:
    """A process and all that came of it, as far as they are still there."""
    found = [pid]
    while found:
        current = found.pop()
        yield current
        found += children_of(current)


def lists_children() -> bool:
    """Whether this kernel tells which processes a process has started; some are built without."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").exists()


def children_of(pid: int) -> list[int]:
    """The processes that any thread of a process has started; none of one that is gone."""
    found: list[int] = []
    threads = Path(f"/proc/{pid}/task")
    try:
        for thread in os.listdir(threads):  # noqa: PTH208 - only the names are wanted
            found += map(int, (threads / thread / "children").read_text().split())
    except OSError:
        return found  # it ended since we looked
    return found


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and all that came of it; a page they share counts for each of them."""
    pages = 0
    for member in _descendants(pid):
        try:
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue  # it ended since we looked
    return pages * _PAGE
