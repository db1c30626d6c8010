"""The garbage collector: removes what has lost its owners, and finishes foreground deletions."""

from __future__ import annotations

import contextlib

from tests.kubernetes.double.deletion import FOREGROUND, DeleteOptions, delete, drop_finalizer, owned_by
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.resources import BY_KIND, BY_PLURAL, JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["GarbageCollector"]

_BACKGROUND = DeleteOptions(propagation="Background")


class GarbageCollector:
    """Follows owner references."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reconcile(self) -> None:
        """Take every object a step further."""
        with self._store.lock:
            # Nothing owns an event, and there are many.
            kinds = [plural for plural in BY_PLURAL if plural != "events"]
            objects = [(plural, obj) for plural in kinds for obj in self._store.list(plural)]
            for plural, obj in objects:
                metadata = obj["metadata"]
                with contextlib.suppress(ApiFailure):
                    if metadata.get("deletionTimestamp"):
                        if FOREGROUND in (metadata.get("finalizers") or []):
                            self._finish_foreground(plural, obj, objects)
                    elif metadata.get("ownerReferences") and not self._has_owner(obj):
                        self._delete(plural, obj, _BACKGROUND)

    def _has_owner(self, obj: JsonObject) -> bool:
        namespace = obj["metadata"].get("namespace", "")
        for reference in obj["metadata"]["ownerReferences"]:
            kind = BY_KIND.get((reference["apiVersion"], reference["kind"]))
            if kind is None:
                return True  # a kind that the double does not know may well be there
            owner = self._store.find(kind.plural, namespace, reference["name"])
            # As a real collector: an owner of another uid, or of a wrong kind, is not there.
            if owner is not None and owner["metadata"]["uid"] == reference["uid"]:
                return True
        return False

    def _finish_foreground(
        self, plural: str, owner: JsonObject, objects: list[tuple[str, JsonObject]]
    ) -> None:
        dependents = [
            (kind, obj)
            for kind, obj in objects
            if owned_by(owner, obj)
            and self._store.find(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        ]
        for kind, obj in dependents:
            if not obj["metadata"].get("deletionTimestamp"):
                self._delete(kind, obj, DeleteOptions(propagation="Foreground" if kind == "jobs" else None))
        if not dependents:
            metadata = owner["metadata"]
            with self._store.edit(plural, metadata.get("namespace", ""), metadata["name"]) as edited:
                drop_finalizer(edited, FOREGROUND)

    def _delete(self, plural: str, obj: JsonObject, options: DeleteOptions) -> None:
        metadata = obj["metadata"]
        with contextlib.suppress(ApiFailure):
            delete(self._store, plural, metadata.get("namespace", ""), metadata["name"], options)
