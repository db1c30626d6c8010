"""Lists and watches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.kubernetes.double.errors import bad_request
from tests.kubernetes.double.resources import BY_PLURAL, JsonObject
from tests.kubernetes.double.selectors import field_selector, label_selector
from tests.kubernetes.double.store import Change, Store

__all__ = ["list_objects", "matcher", "watch_objects"]

_LONGEST_WATCH_SEC = 1800.0
_POLL_SEC = 0.5


def matcher(plural: str, query: Mapping[str, str]) -> Callable[[JsonObject], bool]:
    """Return a test of objects against a request's selectors."""
    labels = label_selector(query.get("labelSelector"))
    fields = field_selector(plural, query.get("fieldSelector"))
    return lambda obj: labels(obj) and fields(obj)


def list_objects(store: Store, plural: str, namespace: str, query: Mapping[str, str]) -> JsonObject:
    """Return a list, or a page of it (`limit`, `continue`)."""
    kind = BY_PLURAL[plural]
    with store.lock:
        objects = store.list(plural, namespace, matcher(plural, query))
        metadata: dict[str, Any] = {"resourceVersion": str(store.version)}
    after = query.get("continue")
    if after:
        objects = [obj for obj in objects if _page_key(obj) > after]
    limit = int(query.get("limit") or 0)
    if limit and len(objects) > limit:
        metadata.update(
            {"continue": _page_key(objects[limit - 1]), "remainingItemCount": len(objects) - limit}
        )
        objects = objects[:limit]
    return {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": objects,
    }


def watch_objects(
    store: Store, plural: str, namespace: str, query: Mapping[str, str], ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Return the lines of a watch; an empty one now and then, so that a client that is gone is noticed."""
    matching = matcher(plural, query)
    deadline = time.monotonic() + float(query.get("timeoutSeconds") or _LONGEST_WATCH_SEC)
    asked = query.get("resourceVersion")
    with store.lock:
        version = store.version
        first = [] if asked not in (None, "", "0") else store.list(plural, namespace, matching)
    if asked not in (None, "", "0"):
        if not asked.isdigit():
            raise bad_request(f"resourceVersion: Invalid value: {asked!r}")
        version = int(asked)
    return _lines(store, plural, namespace, matching, version, first, deadline, ended)


def _lines(
    store: Store,
    plural: str,
    namespace: str,
    matching: Callable[[JsonObject], bool],
    version: int,
    first: list[JsonObject],
    deadline: float,
    ended: Callable[[], bool],
) -> Iterator[bytes]:
    for obj in first:
        yield _line("ADDED", obj)
    while time.monotonic() < deadline and not ended():
        store.wait(version, min(_POLL_SEC, max(deadline - time.monotonic(), 0)))
        changes = store.changes_since(version)
        if changes is None:
            yield _line("ERROR", _expired(version))
            return
        told = False
        for change in changes:
            version = change.version
            if change.plural != plural or namespace not in ("", change.last["metadata"].get("namespace")):
                continue
            event = _event(change, matching)
            if event:
                told = True
                yield _line(event, change.last)
        if not told:
            yield b""


def _event(change: Change, matching: Callable[[JsonObject], bool]) -> str | None:
    # To a watch, an object appears and goes with its selectors.
    before = change.before is not None and matching(change.before)
    after = change.after is not None and matching(change.after)
    if after:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _line(event: str, obj: JsonObject) -> bytes:
    return json.dumps({"type": event, "object": obj}).encode() + b"\n"


def _expired(version: int) -> JsonObject:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {version}",
        "reason": "Expired",
        "code": 410,
    }


def _page_key(obj: JsonObject) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
