"""Addresses of objects: one canonical form, and whether one lies within another.

Nothing here touches a store or a disk, except that a relative local path needs a folder to start from.

Canonical forms: `file:///abs/key`, `s3://bucket/key`, `gs://bucket/key`, `az://container/key`,
`memory://name/key`, `https://host[:port]/key[?query]` (`http` alike). Keys are taken as they stand; only in
`file://` and `https://` are percent signs escapes. A trailing slash is dropped: a folder is named without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_SCHEMES = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "memory": "memory",
    "https": "https",
    "http": "http",
}
_SUPPORTED = "a local path, file://, s3://, gs://, az:// or https://"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
_AUTHORITY = {
    "bucket": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z"),
    "web": re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z"),
}
_DEFAULT_PORT = {"https": ":443", "http": ":80"}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_FILE_ESCAPES = re.compile(r"[%?# ]")


class InvalidPath(ValueError):
    """The text is not an address this project understands."""


@dataclass(frozen=True, slots=True)
class Location:
    """An address, taken apart. `key` has no slash at either end; `container` is a bucket, a host or empty."""

    scheme: str
    container: str
    key: str
    query: str = ""

    @property
    def uri(self) -> str:
        """The canonical URI."""
        if self.scheme == "file":
            return "file:///" + _FILE_ESCAPES.sub(lambda found: f"%{ord(found[0]):02X}", self.key)
        slash = "/" if self.key else ""
        return f"{self.scheme}://{self.container}{slash}{self.key}{self.query}"

    @property
    def path(self) -> Path:
        """The local path; only of a `file` location."""
        return Path("/") / self.key

    def within(self, root: Location) -> bool:
        """Whether this is `root` or lies in the folder `root`."""
        if (self.scheme, self.container) != (root.scheme, root.container):
            return False
        return not root.key or self.key == root.key or self.key.startswith(root.key + "/")


def redact(uri: str) -> str:
    """An address fit for logs and errors: no query string, no user name or password."""
    match = _URI.match(uri)
    if not match or match[1].lower() == "file":
        return uri
    rest = match[2].partition("?")[0]
    authority, slash, key = rest.partition("/")
    return f"{match[1]}://{authority.rpartition('@')[2]}{slash}{key}"


def parse_location(uri: str, base_dir: Path) -> Location:
    """Read a local path or URI.

    Args:
        uri: the text.
        base_dir: absolute folder that relative local paths start from.

    Raises:
        InvalidPath: the text is no address, or one that could be read in two ways (`..`, empty segments).
    """
    if not uri or uri != uri.strip():
        raise InvalidPath(f"{redact(uri)!r} is not a path: it is empty or has blanks around it")
    if _UNPRINTABLE.search(uri):
        raise InvalidPath(
            f"{redact(uri)!r} is not a path: it has a control character or half of a surrogate pair"
        )
    match = _URI.match(uri)
    if match is None:
        if uri.partition(":")[0].lower() in _SCHEMES and ":" in uri:
            raise InvalidPath(f"{redact(uri)!r}: write the scheme with '://'")
        return _local(uri, base_dir)
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        raise InvalidPath(f"{redact(uri)!r}: the scheme {match[1]!r} is not known; use {_SUPPORTED}")
    if scheme == "file":
        return _file_uri(uri, match[2], base_dir)
    authority, _, key = match[2].partition("/")
    if scheme in _DEFAULT_PORT:
        return _web(uri, scheme, match[2])
    return Location(scheme, _container(uri, authority, "bucket"), _segments(uri, key.removesuffix("/")))


def _local(text: str, base_dir: Path) -> Location:
    if text.startswith("~"):
        raise InvalidPath(f"{text!r}: '~' is not expanded here; write the whole path")
    _refuse_climbing(text, text.split("/"))
    return Location("file", "", str(base_dir / text).strip("/"))


def _file_uri(uri: str, rest: str, base_dir: Path) -> Location:
    authority, slash, key = rest.partition("/")
    if authority.lower() not in ("", "localhost") or not slash:
        raise InvalidPath(f"{uri!r}: a file URI is file:///absolute/path")
    if "?" in key or "#" in key:
        raise InvalidPath(f"{uri!r}: '?' and '#' of a file name are written %3F and %23 in a file URI")
    path = unquote(key, errors="surrogateescape")
    if _UNPRINTABLE.search(path):
        raise InvalidPath(f"{uri!r} is not a path: it has a control character or is not UTF-8")
    return _local("/" + path, base_dir)


def _web(uri: str, scheme: str, rest: str) -> Location:
    address, mark, query = rest.partition("?")
    if "#" in rest or "\\" in rest or " " in rest:
        raise InvalidPath(f"{redact(uri)!r}: '#', '\\' and blanks do not belong in a URL")
    authority, _, key = address.partition("/")
    if "@" in authority:
        raise InvalidPath(f"{redact(uri)!r}: a user name or password in a URL is refused")
    host = authority.lower().removesuffix(_DEFAULT_PORT[scheme])
    return Location(scheme, _container(uri, host, "web"), _segments(uri, key.removesuffix("/")), mark + query)


def _container(uri: str, text: str, kind: str) -> str:
    if "@" in text:
        raise InvalidPath(
            f"{redact(uri)!r}: nothing may stand before '@' here; credentials, and the account of an Azure "
            "container, come from the environment"
        )
    if not _AUTHORITY[kind].match(text):
        raise InvalidPath(
            f"{redact(uri)!r}: {text!r} is not the name of a {'host' if kind == 'web' else 'bucket'}"
        )
    return text


def _segments(uri: str, key: str) -> str:
    if not key:
        return key
    segments = key.split("/")
    if "" in segments or "." in segments:
        raise InvalidPath(f"{redact(uri)!r}: a segment of the path is empty or '.'")
    _refuse_climbing(uri, segments)
    return key


def _refuse_climbing(uri: str, segments: list[str]) -> None:
    """Refuse '..', also where a server may decode it from escapes or cut off a `;parameter`."""
    for segment in segments:
        decoded, previous = segment, ""
        while decoded != previous:
            previous, decoded = decoded, unquote(decoded)
        if any(part.partition(";")[0] == ".." for part in re.split(r"[/\\]", decoded)):
            raise InvalidPath(f"{redact(uri)!r}: '..' is not allowed in a path")
        if segment != decoded and decoded.partition(";")[0] == ".":
            raise InvalidPath(f"{redact(uri)!r}: an escaped '.' is not allowed as a segment of a path")
