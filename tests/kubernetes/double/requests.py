"""A request and its answer, apart from sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.kubernetes.double.errors import ApiFailure, bad_request

__all__ = ["Answer", "Request", "is_true"]


def is_true(text: str | None) -> bool:
    """Return what Go's ParseBool says; the Python client sends `True`."""
    return (text or "").lower() in ("1", "t", "true")


@dataclass(frozen=True)
class Request:
    """A request whose body has been read."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    raw: bytes

    @cached_property
    def body(self) -> Any:
        """Its JSON, or None.

        Raises:
            ApiFailure: The body is none.
        """
        if not self.raw:
            return None
        if self.raw.startswith(b"k8s\0"):
            raise ApiFailure(415, "UnsupportedMediaType", "the double takes JSON only, not protobuf")
        try:
            return json.loads(self.raw)
        except ValueError as error:
            raise bad_request(f"the body of the request is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: JSON, text, or a stream that ends by itself, with an empty piece where nothing is to say."""

    code: int = 200
    content: Any = None
    text: bytes | None = None
    stream: Iterator[bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content_type(self) -> str:
        """As the header says."""
        return "application/json" if self.content is not None else "text/plain"
