"""A remote checkpoint's way into the cache: found there, waited for, or fetched, checked and published.

Which process fetches is decided by the lock of the cache's entry. How bytes are moved is the matter of
`batch_pipelines.models.objects` and `batch_pipelines.models.hub`.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import orjson

from batch_pipelines.models.cache import CacheEntry, require_space
from batch_pipelines.models.completeness import require_indexed_files, require_whole_tensors
from batch_pipelines.models.errors import CheckpointRefused, ModelUnavailable
from batch_pipelines.models.file_choice import FileChoice, RemoteFile
from batch_pipelines.models.hub import SCRATCH
from batch_pipelines.models.objects import CheckpointChanged
from batch_pipelines.models.transfer import Job, Transfer

__all__ = ["AT_ONCE", "RECORD", "Check", "Fetch", "Log", "Part", "files_digest", "obtain", "of_part"]

AT_ONCE: Final = 16
"""Files, or ranges of files, that are fetched at once; with ranges of 16 MiB they take 256 MiB of memory."""

RECORD: Final = ".checkpoint.json"
"""File of an entry that says what it is."""

_LOCK_POLL_SEC = 0.5

Part = Literal["whole", "metadata"]
Log = Callable[[str], None]
Check = Callable[[], None]


class _Checkpoint(Protocol):
    """A remote checkpoint."""

    def jobs(self, files: Sequence[RemoteFile], folder: Path, transfer: Transfer) -> Iterator[Job]: ...


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is wanted, and its place in the cache.

    Attributes:
        name: The checkpoint's address, for people.
        checkpoint: Where it comes from.
        choose: Which of its files are wanted; asked only if something is to be fetched.
        part: Whether its weights are wanted too.
        entry: Its place.
        check: Called about once a second; what it raises ends the fetch.
        log: Called with a line now and then.
    """

    name: str
    checkpoint: _Checkpoint
    choose: Callable[[], FileChoice]
    part: Part
    entry: CacheEntry
    check: Check
    log: Log


def obtain(fetch: Fetch) -> None:
    """Return when the entry is complete, whoever completes it.

    Raises:
        ModelNotFound: There is no such checkpoint.
        CheckpointRefused: It is incomplete or not for this engine.
        CheckpointChanged: It was changed while it was fetched.
        ModelUnavailable: Network, store, hub or disk failed.
    """
    entry, told = fetch.entry, False
    while True:
        with entry.lock(shared=True) as held:
            if held and entry.folder.is_dir():
                entry.touch()
                return
        with entry.lock(shared=False) as held:
            if held and not entry.folder.is_dir():
                _complete(fetch)
                return
        if not told:
            fetch.log(f"{fetch.name} is being fetched by another process; waiting for it")
            told = True
        fetch.check()
        time.sleep(_LOCK_POLL_SEC)


def of_part(choice: FileChoice, part: Part) -> tuple[RemoteFile, ...]:
    """The files that belong to a part."""
    return choice.metadata if part == "metadata" else choice.metadata + choice.weights


def files_digest(files: Iterable[RemoteFile]) -> str:
    """A digest of a listing: names, sizes and versions."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        digest.update(f"{file.name}\0{file.size}\0{file.version}\0".encode())
    return digest.hexdigest()


def _complete(fetch: Fetch) -> None:
    choice, entry = fetch.choose(), fetch.entry
    try:
        entry.partial.mkdir(parents=True, exist_ok=True)
        entry.touch()
        _fetch_missing(fetch, choice)
        record = {
            "checkpoint": fetch.name,
            "part": fetch.part,
            "weights": [file.name for file in choice.weights],
            "weight_bytes": choice.weight_bytes if choice.weights else None,
        }
        (entry.partial / RECORD).write_bytes(orjson.dumps(record))
        shutil.rmtree(entry.partial / SCRATCH, ignore_errors=True)
        entry.publish()
        entry.touch()
    except (CheckpointRefused, CheckpointChanged):
        entry.remove()
        raise
    except OSError as error:
        raise ModelUnavailable(f"{fetch.name} could not be written to {entry.cache}: {error}") from error


def _fetch_missing(fetch: Fetch, choice: FileChoice) -> None:
    """Fetch what earlier attempts have not finished; the weights last, since the rest may tell of a fault."""
    folder, name = fetch.entry.partial, fetch.name
    missing = [file for file in of_part(choice, fetch.part) if not _is_there(folder / file.name, file.size)]
    size = sum(file.size for file in missing)
    require_space(fetch.entry.cache, size, name)
    if fetch.part == "whole":
        fetch.log(f"fetching {len(missing)} files of {name}, {size / 1e9:,.1f} GB, to {fetch.entry.folder}")
    transfer = Transfer(size, name, fetch.log)

    def run(files: list[RemoteFile]) -> None:
        transfer.run(fetch.checkpoint.jobs(files, folder, transfer), at_once=AT_ONCE, check=fetch.check)

    weights = {file.name for file in choice.weights}
    run([file for file in missing if file.name not in weights])
    require_indexed_files(folder, weights, name)
    run([file for file in missing if file.name in weights])
    if fetch.part == "whole":
        require_whole_tensors(folder, sorted(weights), name)


def _is_there(path: Path, size: int) -> bool:
    """Whether a file was finished by an earlier attempt; until it is, it has another name."""
    return path.is_file() and path.stat().st_size == size
