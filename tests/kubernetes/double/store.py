"""The objects, their versions, and the history that watches read.

An object in the store is never changed in place: `edit` works on a copy and puts it in the old one's place.
So what `get` and `list` return is a snapshot that must not be written to. What a request may write is not
decided here.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.errors import already_exists, not_found
from tests.kubernetes.double.resources import BY_PLURAL, JsonObject

__all__ = ["Change", "Store", "is_due_for_removal"]

_HISTORY = 5_000


class Change(NamedTuple):
    """One step of one object: created (no `before`), changed, or removed (no `after`)."""

    version: int
    plural: str
    before: JsonObject | None
    after: JsonObject | None
    last: JsonObject
    """The object as a watch shows it: at removal, its last state with the removal's version."""


class Store:
    """All objects of the cluster. Safe to use from several threads; `lock` spans several calls."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._objects: dict[tuple[str, str, str], JsonObject] = {}
        self._history: deque[Change] = deque(maxlen=_HISTORY)
        self._version = 1000
        self._forgotten = 1000

    @property
    def version(self) -> int:
        """resourceVersion of the newest change."""
        return self._version

    def create(self, plural: str, namespace: str, manifest: Mapping[str, Any]) -> JsonObject:
        """Keep a new object that has a name; uid and times are filled in.

        Raises:
            ApiFailure: The name is taken.
        """
        kind = BY_PLURAL[plural]
        obj: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(dict(manifest))}
        metadata = obj["metadata"]
        if kind.namespaced:
            metadata["namespace"] = namespace
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata["creationTimestamp"] = now()
        metadata.setdefault("generation", 1)
        key = self._key(plural, namespace, metadata["name"])
        with self.lock:
            if key in self._objects:
                raise already_exists(kind.qualified, metadata["name"])
            self._put(key, None, obj)
        return obj

    def find(self, plural: str, namespace: str, name: str) -> JsonObject | None:
        """Return an object or None."""
        with self.lock:
            return self._objects.get(self._key(plural, namespace, name))

    def get(self, plural: str, namespace: str, name: str) -> JsonObject:
        """Return an object.

        Raises:
            ApiFailure: There is none.
        """
        obj = self.find(plural, namespace, name)
        if obj is None:
            raise not_found(BY_PLURAL[plural].qualified, name)
        return obj

    def list(
        self, plural: str, namespace: str = "", matching: Callable[[JsonObject], bool] = lambda _: True
    ) -> list[JsonObject]:
        """Return objects by namespace and name; an empty namespace is all of them."""
        with self.lock:
            found = [
                (key, obj)
                for key, obj in self._objects.items()
                if key[0] == plural and (not namespace or key[1] == namespace)
            ]
        return [obj for _, obj in sorted(found, key=lambda pair: pair[0]) if matching(obj)]

    @contextmanager
    def edit(self, plural: str, namespace: str, name: str, *, uid: str | None = None) -> Iterator[JsonObject]:
        """Give a copy to write to, and keep it at the end. An object due for removal then goes.

        Args:
            plural: Resource.
            namespace: Its namespace; empty for cluster-wide kinds.
            name: Its name.
            uid: Only if it is still this very object.

        Raises:
            ApiFailure: There is none (any more).
        """
        with self.lock:
            before = self.get(plural, namespace, name)
            if uid is not None and before["metadata"]["uid"] != uid:
                raise not_found(BY_PLURAL[plural].qualified, name)
            after = copy.deepcopy(before)
            yield after
            key = self._key(plural, namespace, name)
            if is_due_for_removal(plural, after):
                self._put(key, before, after, remove=True)
            elif after != before:
                if after.get("spec") != before.get("spec"):
                    after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
                self._put(key, before, after)

    def remove(self, plural: str, namespace: str, name: str) -> JsonObject:
        """Take an object out at once, whatever its finalizers."""
        with self.lock:
            before = self.get(plural, namespace, name)
            return self._put(self._key(plural, namespace, name), before, copy.deepcopy(before), remove=True)

    def changes_since(self, version: int) -> Sequence[Change] | None:
        """Return the changes after a version, or None when they are no longer known."""
        with self.lock:
            if version < self._forgotten:
                return None
            newer = deque[Change]()
            for change in reversed(self._history):
                if change.version <= version:
                    break
                newer.appendleft(change)
            return newer

    def wait(self, version: int, within_sec: float) -> None:
        """Wait until something is newer than a version, or the time is over."""
        with self.changed:
            self.changed.wait_for(lambda: self._version > version, timeout=within_sec)

    def _put(
        self, key: tuple[str, str, str], before: JsonObject | None, after: JsonObject, *, remove: bool = False
    ) -> JsonObject:
        self._version += 1
        after["metadata"]["resourceVersion"] = str(self._version)
        if len(self._history) == _HISTORY:
            self._forgotten = self._history[0].version
        if remove:
            del self._objects[key]
        else:
            self._objects[key] = after
        self._history.append(Change(self._version, key[0], before, None if remove else after, after))
        self.changed.notify_all()
        return after

    @staticmethod
    def _key(plural: str, namespace: str, name: str) -> tuple[str, str, str]:
        return plural, namespace if BY_PLURAL[plural].namespaced else "", name


def is_due_for_removal(plural: str, obj: JsonObject) -> bool:
    """Return whether nothing holds back a deleted object any more."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    return plural != "pods" or metadata.get("deletionGracePeriodSeconds", 0) == 0
