"""A checkpoint in an object store: what it holds, and how its files get here.

Credentials, addresses and clients are those of `batch_pipelines.storage`. Whether a request may name the
prefix was decided when it was validated; which files are wanted is `batch_pipelines.models.file_choice`'s.

A file is fetched in ranges, all of the version that was listed, and gets its name when it is whole and right.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import NotFoundError, PreconditionError

from batch_pipelines.models.checksums import checksum_of
from batch_pipelines.models.errors import ModelNotFound, ModelUnavailable
from batch_pipelines.models.file_choice import RemoteFile
from batch_pipelines.models.transfer import Job, Transfer
from batch_pipelines.storage.errors import ObjectNotFound, StorageError, translated
from batch_pipelines.storage.locations import parse_location
from batch_pipelines.storage.stores import Stores

if TYPE_CHECKING:
    from obstore import Bytes, GetOptions

__all__ = ["CheckpointChanged", "ObjectCheckpoint"]

RANGE_BYTES: Final = 16 * 2**20
_MOST_OBJECTS = 20_000
_TRIES = 3
_MD5 = re.compile(r'"?([0-9a-f]{32})"?\Z')


class CheckpointChanged(Exception):
    """An object was replaced or removed since it was listed."""


class ObjectCheckpoint:
    """A checkpoint below a prefix of an object store."""

    def __init__(self, uri: str, stores: Stores, log: Callable[[str], None]) -> None:
        """Ask nothing yet.

        Args:
            uri: The prefix.
            stores: The clients.
            log: Called with what should be known of the store; from any thread.

        Raises:
            ModelUnavailable: The environment does not say enough to connect.
        """
        self.uri = uri
        self._log = log
        try:
            self._store, self._prefix = stores.resolve(parse_location(uri, Path("/")))
        except StorageError as error:
            raise ModelUnavailable(f"{uri}: {error}") from error
        self._tags_are_md5 = True

    def files(self) -> list[RemoteFile]:
        """All objects below the prefix.

        Raises:
            ModelNotFound: There are none, or too many for a checkpoint.
            ModelUnavailable: The store failed.
        """
        found: list[RemoteFile] = []
        try:
            with translated("list", self.uri):
                for batch in obstore.list(self._store, self._prefix or None, chunk_size=1000):
                    found += [self._file(meta["path"], meta["size"], meta["e_tag"]) for meta in batch]
                    if len(found) > _MOST_OBJECTS:
                        break
        except StorageError as error:
            if isinstance(error, ObjectNotFound) or "NoSuchBucket" in str(error):
                raise ModelNotFound(str(error)) from error
            raise ModelUnavailable(str(error)) from error
        if len(found) > _MOST_OBJECTS:
            raise ModelNotFound(
                f"{self.uri} has more than {_MOST_OBJECTS:,} objects: name the folder of one checkpoint"
            )
        if not found:
            raise ModelNotFound(f"there is no object below {self.uri}/")
        return found

    def jobs(self, files: Sequence[RemoteFile], folder: Path, transfer: Transfer) -> Iterator[Job]:
        """The work of fetching files, a range each.

        A job raises `CheckpointChanged`, or `ModelUnavailable` for what other attempts may mend.

        Args:
            files: From `files`.
            folder: Where they go; a file is there under its name only when it is complete.
            transfer: Told of what arrives.
        """
        for file in files:
            yield from _Download(self, file, folder, transfer).jobs()

    def read(self, file: RemoteFile, start: int, end: int) -> Bytes:
        """A range of the version of a file that was listed.

        Raises:
            CheckpointChanged: There is another version now, or none.
            StorageError: The store failed, or answered with fewer bytes.
        """
        uri = f"{self.uri}/{file.name}"
        options: GetOptions = {"range": (start, end)}
        if file.version is not None and not file.version.startswith("W/"):  # a weak tag never matches
            options["if_match"] = file.version
        with translated("read", uri):
            try:
                key = f"{self._prefix}/{file.name}".strip("/")
                data = obstore.get(self._store, key, options=options).bytes()
            except (PreconditionError, NotFoundError, FileNotFoundError) as error:
                raise CheckpointChanged(f"{uri} was replaced or removed") from error
        if len(data) != end - start:
            raise StorageError(f"cannot read {uri}: {len(data):,} bytes came instead of {end - start:,}")
        return data

    def is_right(self, file: RemoteFile, path: Path, fetch_again: Callable[[], None]) -> bool:
        """Whether a file has the checksum that the store gives for it, if it gives one.

        The tag of an object in one part is its MD5, but not if it is encrypted with keys of its own, and a
        listing does not tell which. So a file that does not match is fetched once more: what arrives the same
        twice is right, and the tags of this store are something else.
        """
        if file.checksum is None or not self._tags_are_md5:
            return True
        first = checksum_of(path, "md5")
        if first == file.checksum:
            return True
        fetch_again()
        second = checksum_of(path, "md5")
        if first == second:
            self._tags_are_md5 = False
            self._log(f"{self.uri}: the store's tags are not MD5 checksums; only lengths are checked")
        return second in (first, file.checksum)

    def _file(self, key: str, size: int, tag: str | None) -> RemoteFile:
        md5 = _MD5.match(tag or "")
        quoted = tag if tag is None or tag.startswith(('"', "W/")) else f'"{tag}"'  # Azure lists them bare
        name = key[len(self._prefix) :].strip("/")
        return RemoteFile(name, size, quoted, f"md5:{md5[1]}" if md5 else None)


class _Download:
    """One file on its way; its ranges arrive in any order, from several threads."""

    def __init__(
        self, checkpoint: ObjectCheckpoint, file: RemoteFile, folder: Path, transfer: Transfer
    ) -> None:
        self._checkpoint = checkpoint
        self._file = file
        self._target = folder / file.name
        self._part = self._target.with_name(self._target.name + ".part")
        self._transfer = transfer
        self._lock = threading.Lock()
        self._starts = range(0, file.size, RANGE_BYTES)
        self._left = len(self._starts)

    def jobs(self) -> Iterator[Job]:
        self._part.parent.mkdir(parents=True, exist_ok=True)
        with self._part.open("wb") as part:
            part.truncate(self._file.size)
        if not self._left:
            yield self._finish
        for start in self._starts:
            yield partial(self._fetch, start)

    def _fetch(self, start: int) -> None:
        self._copy(start)
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._finish()

    def _copy(self, start: int, tries: int = _TRIES) -> None:
        self._transfer.add(0)  # ends here if the download was given up
        try:
            data = self._checkpoint.read(self._file, start, min(start + RANGE_BYTES, self._file.size))
        except StorageError as error:
            if tries == 1:
                raise ModelUnavailable(f"{error} (tried {_TRIES} times)") from error
            self._copy(start, tries - 1)
            return
        with self._part.open("r+b") as part:
            part.seek(start)
            part.write(data)
        self._transfer.add(len(data))

    def _copy_all(self) -> None:
        for start in self._starts:
            self._copy(start)

    def _finish(self) -> None:
        file, checkpoint = self._file, self._checkpoint
        if not checkpoint.is_right(file, self._part, self._copy_all):
            raise ModelUnavailable(
                f"{checkpoint.uri}/{file.name} arrived damaged twice: the store says it is {file.checksum}"
            )
        with self._part.open("rb") as part:
            os.fsync(part.fileno())  # its name says that it is whole, also after a crash of the machine
        self._part.rename(self._target)
