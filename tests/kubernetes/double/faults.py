"""The standing faults, and how often each has struck."""

from __future__ import annotations

import re
import threading
from typing import TypeVar

from tests.kubernetes.cluster import (
    ApiError,
    ContainerCreationFailure,
    DroppedConnection,
    Fault,
    HttpFault,
    ImagePullFailure,
    LostAnswer,
    PodFault,
    SlowApi,
    Unschedulable,
)
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.selectors import label_selector

__all__ = ["Faults"]

_Kind = TypeVar("_Kind", bound=PodFault)


class Faults:
    """Faults in the order they were added. A pod that one has struck stays struck until they are cleared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standing: list[tuple[Fault, list[str]]] = []

    def add(self, fault: Fault) -> None:
        """Let a fault stand.

        Raises:
            ApiFailure: Its selector cannot be read.
        """
        if isinstance(fault, Unschedulable | ImagePullFailure | ContainerCreationFailure):
            label_selector(fault.selector)
        else:
            re.compile(fault.path)
            re.compile(fault.body)
        with self._lock:
            self._standing.append((fault, []))

    def clear(self) -> None:
        """End them all."""
        with self._lock:
            self._standing.clear()

    def strikes(self, fault: Fault) -> int:
        """Return how many pods or requests a standing fault has struck; 0 when it does not stand."""
        with self._lock:
            return sum(len(struck) for standing, struck in self._standing if standing == fault)

    def unschedulable(self, pod: JsonObject) -> bool:
        """Return whether a pod must get no node."""
        return self._strikes_pod(Unschedulable, pod)

    def image_pull_fails(self, pod: JsonObject) -> bool:
        """Return whether a pod's image must not be pulled."""
        return self._strikes_pod(ImagePullFailure, pod)

    def container_creation_fails(self, pod: JsonObject) -> bool:
        """Return whether a pod's container must not be created."""
        return self._strikes_pod(ContainerCreationFailure, pod)

    def for_request(self, verb: str, path: str, body: str) -> list[HttpFault]:
        """Return the faults that strike a request: slow ones, and then at most one that decides its end."""
        found: list[HttpFault] = []
        with self._lock:
            for fault, struck in self._standing:
                if not isinstance(fault, ApiError | LostAnswer | DroppedConnection | SlowApi):
                    continue
                if fault.times is not None and len(struck) >= fault.times:
                    continue
                if fault.verb not in ("", verb) or not re.search(fault.path, path):
                    continue
                if not re.search(fault.body, body):
                    continue
                struck.append(path)
                found.append(fault)
                if not isinstance(fault, SlowApi):
                    break
        return found

    def _strikes_pod(self, kind: type[_Kind], pod: JsonObject) -> bool:
        uid = pod["metadata"]["uid"]
        with self._lock:
            for fault, struck in self._standing:
                if not isinstance(fault, kind) or not label_selector(fault.selector)(pod):
                    continue
                if uid in struck:
                    return True
                if fault.times is None or len(struck) < fault.times:
                    struck.append(uid)
                    return True
        return False
