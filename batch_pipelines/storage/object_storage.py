"""One way to reach objects: local folders, S3, GCS, Azure, HTTPS (read only), and memory for tests.

Belongs here: reading, writing, creating once, listing, always after the allow-list. Does not belong here:
which folder holds what (the job store) or what an object's bytes mean.

Local folders must support hard links (creating once relies on them); FUSE mounts of buckets often do not:
name the bucket itself instead.
"""

from __future__ import annotations

import functools
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError

from batch_pipelines.storage.errors import ObjectNotFound, PathNotAllowed, StorageError, translated
from batch_pipelines.storage.local_folders import resolve_links, walk_files
from batch_pipelines.storage.locations import InvalidPath, Location, parse_location, redact
from batch_pipelines.storage.object_info import ObjectInfo
from batch_pipelines.storage.readers import buffered, object_ranges
from batch_pipelines.storage.stores import Stores
from batch_pipelines.storage.web import web_chunks, web_head
from batch_pipelines.storage.writers import write_parts

if TYPE_CHECKING:
    from obstore import ObjectMeta

__all__ = [
    "InvalidPath",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectStorage",
    "PathNotAllowed",
    "StorageError",
    "redact",
]

_ONE_REQUEST_BYTES = 64 * 2**20  # more than this is written in parts
_WEB = ("https", "http")


class ObjectStorage:
    """Objects by URI or local path, within the allowed roots. Thread-safe."""

    def __init__(self, *, roots: Sequence[str], base_dir: Path | None = None) -> None:
        """Allow what lies in the `roots`.

        Args:
            roots: folders as URIs or local paths; 's3://bucket/team' allows 's3://bucket/team/x', not
                's3://bucket/team2'.
            base_dir: where relative local paths start; the current folder if not given.

        Raises:
            InvalidPath: a root is not an address.
        """
        self._base_dir = (base_dir or Path.cwd()).absolute()
        self._parse = functools.lru_cache(maxsize=4096)(
            functools.partial(parse_location, base_dir=self._base_dir)
        )
        self._roots = tuple(self._parse(root) for root in roots)
        self._real_roots = tuple(resolve_links(root) for root in self._roots)
        self._stores = Stores()

    def normalize(self, uri: str) -> str:
        """The canonical URI of a path or URI, whether or not it is allowed.

        Raises:
            InvalidPath: it is not an address.
        """
        return self._parse(uri).uri

    def check(self, uri: str) -> str:
        """The canonical URI of a path or URI that may be touched.

        Raises:
            InvalidPath: it is not an address.
            PathNotAllowed: it is outside the roots; for local files, after links are followed.
        """
        self._allowed(uri)
        return self._parse(uri).uri

    def head(self, uri: str) -> ObjectInfo:
        """Describe an object.

        Raises:
            ObjectNotFound: it does not exist.
            StorageError: the store failed.
        """
        name, location = self._object(uri)
        if location.scheme in _WEB:
            return web_head(name)
        store, key = self._stores.resolve(location)
        with translated("look at", name):
            return _info(name, obstore.head(store, key))

    def exists(self, uri: str) -> bool:
        """Whether there is an object."""
        try:
            self.head(uri)
        except ObjectNotFound:
            return False
        return True

    def read(self, uri: str) -> bytes:
        """The whole object, in memory.

        Raises:
            ObjectNotFound: it does not exist.
            StorageError: the store failed.
        """
        name, location = self._object(uri)
        if location.scheme in _WEB:
            return b"".join(web_chunks(name))
        store, key = self._stores.resolve(location)
        with translated("read", name):
            return obstore.get(store, key).bytes().to_bytes()

    def open_reader(self, uri: str) -> BinaryIO:
        """The object as a binary file, read as it is asked for. Close it.

        A reader sees one version of the object; a read after the object was replaced raises StorageError.

        Raises:
            ObjectNotFound: it does not exist.
            StorageError: the store failed; also raised by reads.
        """
        name, location = self._object(uri)
        if location.scheme in _WEB:
            chunks = web_chunks(name)
            first = next(chunks, b"")  # opens the connection now, so that a missing file is known now
            return buffered(_chain(first, chunks))
        if location.scheme == "file":
            with translated("read", name):
                if not location.path.is_file():  # a pipe would block, a device never end
                    raise FileNotFoundError(location.path)
                return cast(BinaryIO, location.path.open("rb"))
        store, key = self._stores.resolve(location)
        with translated("read", name):
            meta = obstore.head(store, key)
        return buffered(object_ranges(store, key, name, meta["size"], meta["e_tag"]))

    def write(self, uri: str, data: bytes) -> None:
        """Write or replace an object; a reader sees the old one or the new one, never a part.

        Raises:
            StorageError: the store failed.
        """
        if len(data) > _ONE_REQUEST_BYTES:
            self.write_stream(uri, [data])
            return
        name, location = self._target(uri)
        store, key = self._stores.resolve(location)
        with translated("write", name):
            obstore.put(store, key, data, use_multipart=False)

    def create(self, uri: str, data: bytes) -> bool:
        """Write an object unless there is one; of several at once, exactly one succeeds.

        Returns:
            False if it existed. After a lost connection it may be False though the object is the caller's own
            (the client tried again): where that matters, put a unique value into the data and read it back.

        Raises:
            StorageError: the store failed.
        """
        name, location = self._target(uri)
        store, key = self._stores.resolve(location)
        with translated("create", name):
            try:
                obstore.put(store, key, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def write_stream(self, uri: str, chunks: Iterable[bytes]) -> int:
        """Write or replace an object from chunks, completely or not at all, within about 100 MB of memory.

        If `chunks` raises, its exception passes through and nothing is left: no object, no part, no temporary
        file. `chunks` may itself read from this storage.

        Returns:
            Bytes written.

        Raises:
            StorageError: the store failed.
        """
        name, location = self._target(uri)
        store, key = self._stores.resolve(location)
        return write_parts(store, key, name, chunks)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object in the folder `prefix` and below, in the order of their keys (by UTF-8 bytes).

        'a/b' gives 'a/b/c', neither 'a/b' itself nor 'a/bc'. A folder that does not exist is empty. Local:
        linked folders are not entered, and links that lead outside the roots are left out.

        Raises:
            StorageError: the store failed.
        """
        named = self._parse(prefix)
        location = self._allowed(prefix)
        if location.scheme in _WEB:
            raise StorageError(f"cannot list {redact(named.uri)}: a web server has no folders")
        if location.scheme == "file":
            return self._list_local(named, location)
        return self._list_remote(location)

    def delete(self, uri: str) -> None:
        """Remove an object; one that does not exist is fine.

        Raises:
            StorageError: the store failed.
        """
        name, location = self._target(uri)
        store, key = self._stores.resolve(location)
        with translated("delete", name):
            try:
                obstore.delete(store, key)
            except FileNotFoundError:
                return

    def _allowed(self, uri: str) -> Location:
        """Where `uri` really is. Links can change at any time, so this part is not cached."""
        location = self._parse(uri)
        real = resolve_links(location)
        if not any(real.within(root) for root in self._real_roots):
            roots = ", ".join(redact(root.uri) for root in self._roots) or "none"
            raise PathNotAllowed(
                f"{redact(location.uri)} is not in a folder this deployment may use; allowed: {roots}"
            )
        return real

    def _object(self, uri: str) -> tuple[str, Location]:
        location = self._allowed(uri)
        if not location.key:
            raise InvalidPath(f"{redact(location.uri)!r} names a whole store, not an object")
        return self._parse(uri).uri, location

    def _target(self, uri: str) -> tuple[str, Location]:
        name, location = self._object(uri)
        if location.scheme in _WEB:
            raise StorageError(f"cannot write {redact(name)}: web addresses can only be read")
        if location.scheme == "file" and location.path.is_dir():
            raise StorageError(f"cannot write {name}: it is a folder")
        return name, location

    def _list_remote(self, location: Location) -> Iterator[ObjectInfo]:
        store, prefix = self._stores.resolve(location)
        skip = len(prefix) - len(location.key)  # the memory store keeps the container's name within the key
        with translated("list", location.uri):
            for batch in obstore.list(store, prefix or None, chunk_size=1000):
                for meta in batch:
                    yield _info(replace(location, key=meta["path"][skip:].strip("/")).uri, meta)

    def _list_local(self, named: Location, real: Location) -> Iterator[ObjectInfo]:
        for path, status in walk_files(real.path):
            relative = str(path.relative_to(real.path))
            try:
                uri = self._parse(replace(named, key=f"{named.key}/{relative}".strip("/")).uri).uri
                if stat.S_ISREG(status.st_mode):
                    modified = datetime.fromtimestamp(status.st_mtime, UTC)
                    yield ObjectInfo(uri=uri, size=status.st_size, etag=None, last_modified=modified)
                else:
                    yield self.head(uri)
            except (ObjectNotFound, PathNotAllowed, InvalidPath):
                continue  # removed meanwhile, a link that leads outside, or a name no URI can hold


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _info(uri: str, meta: ObjectMeta) -> ObjectInfo:
    modified = meta["last_modified"].astimezone(UTC)
    return ObjectInfo(uri=uri, size=meta["size"], etag=meta["e_tag"], last_modified=modified)
