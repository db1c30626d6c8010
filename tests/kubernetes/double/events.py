"""Events: what controllers, scheduler and kubelets say about an object. Equal ones are counted."""

from __future__ import annotations

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.names import random_suffix
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["EventRecorder"]


class EventRecorder:
    """Writes events of one component."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._names: dict[tuple[str, str, str], str] = {}

    def normal(self, obj: JsonObject, reason: str, message: str) -> None:
        """Say that something went as it should."""
        self._record(obj, "Normal", reason, message)

    def warning(self, obj: JsonObject, reason: str, message: str) -> None:
        """Say that something went wrong."""
        self._record(obj, "Warning", reason, message)

    def _record(self, obj: JsonObject, level: str, reason: str, message: str) -> None:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default")
        key = (metadata["uid"], reason, message)
        with self._store.lock:
            known = self._names.get(key)
            if known and self._store.find("events", namespace, known):
                with self._store.edit("events", namespace, known) as event:
                    event["count"] += 1
                    event["lastTimestamp"] = now()
                return
            self._names[key] = f"{metadata['name'][:200].rstrip('-.')}.{random_suffix(16)}"
            moment = now()
            self._store.create(
                "events",
                namespace,
                {
                    "metadata": {"name": self._names[key]},
                    "type": level,
                    "reason": reason,
                    "message": message,
                    "count": 1,
                    "firstTimestamp": moment,
                    "lastTimestamp": moment,
                    "eventTime": None,
                    "source": {"component": self._component},
                    "reportingComponent": self._component,
                    "reportingInstance": "",
                    "involvedObject": {
                        "apiVersion": obj["apiVersion"],
                        "kind": obj["kind"],
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "resourceVersion": metadata["resourceVersion"],
                        **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
                    },
                },
            )
