"""The folder where fetched checkpoints are kept: which there are, who uses them, which may go.

```
<cache>/<entry>/           a checkpoint, complete; it never changes again
<cache>/.partial/<entry>/  one that is being fetched, or was interrupted; its finished files are kept
<cache>/.locks/<entry>     locked (flock) exclusively by who fetches or removes, shared by who uses; its
                           modification time is the entry's last use
```

Lock files stay when their entry goes: removing one that another process waits for would leave two locks of
one name. How a checkpoint gets here is in `batch_pipelines.models.checkpoints`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from batch_pipelines.models.errors import ModelUnavailable

__all__ = ["CacheEntry", "evict", "in_use", "require_space"]

_SPARE_BYTES = 2**30  # what a download leaves free for everything else on the disk


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One checkpoint's place in a cache.

    Attributes:
        cache: The cache's folder.
        name: Name of the entry; it tells one version of a checkpoint from every other.
    """

    cache: Path
    name: str

    @property
    def folder(self) -> Path:
        """The checkpoint; there if and only if it is complete."""
        return self.cache / self.name

    @property
    def partial(self) -> Path:
        """What is fetched of it so far."""
        return self.cache / ".partial" / self.name

    @property
    def last_use(self) -> float:
        """When it was last used, in seconds since the epoch; 0 if never."""
        try:
            return self._lock_file.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def touch(self) -> None:
        """Note that it is used now."""
        os.utime(self._lock_file)

    @contextmanager
    def lock(self, *, shared: bool, wait: bool = False) -> Iterator[bool]:
        """Hold the entry's lock for a while.

        Args:
            shared: Whether others may hold it too.
            wait: Whether to wait until it is free.

        Yields:
            Whether it is held.

        Raises:
            ModelUnavailable: The cache is on a file system without locks, or cannot be written.
        """
        kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        try:
            self._lock_file.parent.mkdir(parents=True, exist_ok=True)
            number = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ModelUnavailable(f"the model cache {self.cache} cannot be written: {error}") from error
        try:
            try:
                fcntl.flock(number, kind)
                held = True
            except BlockingIOError:
                held = False
            except OSError as error:
                raise ModelUnavailable(
                    f"the model cache {self.cache} is on a disk without locks, use a local one: {error}"
                ) from error
            yield held
        finally:
            os.close(number)  # and with it the lock

    def publish(self) -> None:
        """Make what was fetched the entry; only by who holds its lock exclusively."""
        self.partial.rename(self.folder)

    def remove(self) -> None:
        """Remove the entry and its parts; only by who holds its lock exclusively.

        It stops being complete at once: what a crash leaves is a part of it, which the next fetch completes.
        """
        if self.folder.is_dir():
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.parent.mkdir(exist_ok=True)
            self.folder.rename(self.partial)
        shutil.rmtree(self.partial, ignore_errors=True)

    @property
    def _lock_file(self) -> Path:
        return self.cache / ".locks" / self.name


@contextmanager
def in_use(cache: Path, folder: Path) -> Iterator[None]:
    """Keep a checkpoint from being evicted, on this machine and any other that shares the cache.

    Args:
        cache: The cache's folder.
        folder: What was fetched; a folder that is not of the cache needs no keeping.

    Raises:
        ModelUnavailable: It was evicted meanwhile.
    """
    if folder.parent != cache:
        yield
        return
    entry = CacheEntry(cache, folder.name)
    with entry.lock(shared=True, wait=True):
        if not folder.is_dir():
            raise ModelUnavailable(f"{folder} was evicted before it was used; a new attempt fetches it again")
        entry.touch()
        yield
        entry.touch()


def evict(cache: Path, max_bytes: int, *, idle: timedelta = timedelta(minutes=10)) -> list[str]:
    """Remove the checkpoints that were not used for longest, until the cache is small enough.

    One that is in use, being fetched, or was used within `idle` stays, so the cache may stay larger. What an
    interrupted fetch left counts and goes like the others.

    Args:
        cache: The cache's folder; it may be missing.
        max_bytes: Most bytes it should hold.
        idle: How long one must not have been used.

    Returns:
        Names of the entries removed.
    """
    sizes = {entry: _bytes_of(entry.folder) + _bytes_of(entry.partial) for entry in _entries(cache)}
    total, removed = sum(sizes.values()), []
    for entry in sorted(sizes, key=lambda entry: entry.last_use):
        if total <= max_bytes:
            break
        with entry.lock(shared=False) as held:
            if not held or time.time() - entry.last_use < idle.total_seconds():
                continue
            entry.remove()
        total -= sizes[entry]
        removed.append(entry.name)
    return removed


def require_space(cache: Path, needed: int, what: str) -> None:
    """Check that a download fits on the cache's disk.

    Raises:
        ModelUnavailable: It does not; the text has the numbers.
    """
    free = shutil.disk_usage(cache).free
    if needed + _SPARE_BYTES > free:
        raise ModelUnavailable(
            f"{what} needs {needed / 1e9:,.1f} GB and {_SPARE_BYTES / 1e9:,.1f} GB to spare, and {cache} has "
            f"{free / 1e9:,.1f} GB free: give it a larger disk, or evict models that are no longer used"
        )


def _entries(cache: Path) -> set[CacheEntry]:
    names = set()
    for folder in (cache, cache / ".partial"):
        if folder.is_dir():
            names |= {path.name for path in folder.iterdir() if path.is_dir()}
    return {CacheEntry(cache, name) for name in names if not name.startswith(".")}


def _bytes_of(folder: Path) -> int:
    """Bytes on disk; a file that is fetched in parts has its full length from the start."""
    total = 0
    for directory, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(directory) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue  # finished meanwhile, under another name
    return total
