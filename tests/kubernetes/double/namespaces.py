"""The namespace controller: a default ServiceAccount in each, and the emptying of those that go."""

from __future__ import annotations

import contextlib

from tests.kubernetes.double.deletion import DeleteOptions, delete
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.resources import BY_PLURAL
from tests.kubernetes.double.store import Store

__all__ = ["NamespaceController"]


class NamespaceController:
    """Looks after namespaces."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reconcile(self) -> None:
        """Take every namespace a step further."""
        with self._store.lock:
            for namespace in self._store.list("namespaces"):
                name = namespace["metadata"]["name"]
                if namespace["metadata"].get("deletionTimestamp"):
                    self._empty(name)
                elif self._store.find("serviceaccounts", name, "default") is None:
                    self._store.create("serviceaccounts", name, {"metadata": {"name": "default"}})

    def _empty(self, namespace: str) -> None:
        left = False
        for plural, kind in BY_PLURAL.items():
            for obj in self._store.list(plural, namespace) if kind.namespaced else []:
                left = True
                if not obj["metadata"].get("deletionTimestamp"):
                    with contextlib.suppress(ApiFailure):
                        options = DeleteOptions(propagation="Background")
                        delete(self._store, plural, namespace, obj["metadata"]["name"], options)
        if not left:
            self._store.remove("namespaces", "", namespace)
