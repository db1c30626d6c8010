"""What clients have asked of the double: every manifest as it came, and every refusal."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.double.errors import ApiFailure, bad_request
from tests.kubernetes.double.resources import JsonObject, ResourceKind

__all__ = ["Manifest", "Record", "Refusal", "RequestLine"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as it came. `verb`: create or update."""

    verb: str
    plural: str
    namespace: str
    manifest: JsonObject


@dataclass(frozen=True, slots=True)
class Refusal:
    """A manifest that was refused, and why."""

    verb: str
    plural: str
    manifest: JsonObject
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request; `moment` is monotonic, in seconds."""

    moment: float
    method: str
    path: str
    query: dict[str, str]


class Record:
    """Grows with each request. The lists are for reading."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.manifests: list[Manifest] = []
        self.rejected: list[Refusal] = []
        self.requests: list[RequestLine] = []

    def request(self, method: str, path: str, query: dict[str, str]) -> None:
        """Note a request."""
        with self._lock:
            self.requests.append(RequestLine(time.monotonic(), method, path, query))

    def received(self, verb: str, kind: ResourceKind, namespace: str, manifest: Any) -> JsonObject:
        """Note a manifest and return it.

        Raises:
            ApiFailure: It is no object with metadata at all.
        """
        if not isinstance(manifest, dict) or not isinstance(manifest.get("metadata"), dict):
            raise bad_request(f"the object provided is not a {kind.kind} with metadata")
        with self._lock:
            self.manifests.append(Manifest(verb, kind.plural, namespace, copy.deepcopy(manifest)))
        return manifest

    @contextmanager
    def noting_refusal(self, verb: str, kind: ResourceKind, manifest: JsonObject) -> Iterator[None]:
        """Note a refusal for what is wrong with the manifest; a conflict with what is there (409) is none."""
        try:
            yield
        except ApiFailure as failure:
            if failure.code in (400, 403, 422):
                refusal = Refusal(verb, kind.plural, copy.deepcopy(manifest), failure.code, failure.message)
                with self._lock:
                    self.rejected.append(refusal)
            raise
