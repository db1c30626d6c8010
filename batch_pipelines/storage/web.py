"""Reading over HTTPS: a public file, or one behind a signed link.

Writes do not belong here. Redirects are not followed: the target of one was never checked against the allowed
roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from batch_pipelines.storage.errors import ObjectNotFound, StorageError
from batch_pipelines.storage.locations import redact
from batch_pipelines.storage.object_info import ObjectInfo

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_CHUNK_BYTES = 2**17


def web_head(uri: str) -> ObjectInfo:
    """Describe the file at `uri` by opening and dropping a GET: a link signed for GET refuses HEAD."""
    with _get(uri) as response:
        length = response.headers.get("content-length", "")
        return ObjectInfo(
            uri=uri,
            size=int(length) if length.isdecimal() else -1,
            etag=response.headers.get("etag"),
            last_modified=_date(response.headers),
        )


def web_chunks(uri: str) -> Iterator[bytes]:
    """The bytes of the file at `uri`, as they are on the server."""
    with _get(uri) as response:
        yield from response.iter_raw(_CHUNK_BYTES)


@contextmanager
def _get(uri: str) -> Iterator[httpx.Response]:
    name = redact(uri)
    headers = {"accept-encoding": "identity"}
    try:
        with httpx.stream("GET", uri, headers=headers, timeout=_TIMEOUT, follow_redirects=False) as response:
            if response.status_code == httpx.codes.NOT_FOUND:
                raise ObjectNotFound(f"cannot read {name}: the server says 404, not found")
            if response.is_redirect:
                raise StorageError(f"cannot read {name}: it redirects; give the final URL, none is followed")
            if response.status_code != httpx.codes.OK:
                status = f"{response.status_code} {response.reason_phrase}"
                raise StorageError(f"cannot read {name}: the server says {status}")
            yield response
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # Not chained: httpx errors hold the request, and with it a signed link.
        raise StorageError(f"cannot read {name}: {type(error).__name__}") from None


def _date(headers: httpx.Headers) -> datetime:
    try:
        return parsedate_to_datetime(headers["last-modified"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.fromtimestamp(0, UTC)
