"""Waiting for processes to appear and to be gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def wait_until(condition: Callable[[], bool], *, within_sec: float = 20.0, every_sec: float = 0.02) -> None:
    """Return once the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + within_sec
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_sec} s"
        time.sleep(every_sec)


def gone(pid: int) -> bool:
    """Return whether no such process runs; one that ended and waits to be collected counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pids_in(path: Path, count: int) -> list[int]:
    """Wait for scripts to write `count` process ids to a file, one a line, and return the first ones."""
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count)
    return [int(line) for line in path.read_text().split()[:count]]
