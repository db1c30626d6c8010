"""What a store says about an object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as its store describes it.

    Attributes:
        uri: canonical address.
        size: bytes; -1 where a web server does not say.
        etag: changes when the object does; None where the store has none.
        last_modified: aware, UTC, by the store's clock (compare it only with times of the same store);
            the epoch where a web server does not say.
    """

    uri: str
    size: int
    etag: str | None
    last_modified: datetime
