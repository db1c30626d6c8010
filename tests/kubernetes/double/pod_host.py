"""What a container needs of the node it runs on: its pod's status, images, folders, waiting."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.events import EventRecorder
from tests.kubernetes.double.faults import Faults
from tests.kubernetes.double.images import Image
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["PodHost", "log_file"]


class PodHost:
    """One pod's share of a node."""

    def __init__(
        self,
        store: Store,
        pod: JsonObject,
        *,
        faults: Faults,
        images: Mapping[str, Image],
        folder: Path,
        service_environment: Mapping[str, str],
        wait_scale: float,
    ) -> None:
        """Take a pod.

        Args:
            store: The cluster's objects.
            pod: The pod as it was scheduled.
            faults: Standing faults.
            images: What can be pulled.
            folder: The pod's own, for its containers' files and logs.
            service_environment: Variables that every container of the cluster has.
            wait_scale: Factor for the kubelet's own waits.
        """
        self.store = store
        self.events = EventRecorder(store, "kubelet")
        self.folder = folder
        self.service_environment = service_environment
        self.restart_policy: str = pod["spec"].get("restartPolicy", "Always")
        self._pod = pod
        self._faults = faults
        self._images = images
        self._wait_scale = wait_scale
        self._ending = threading.Event()
        self._silent = False

    @property
    def ending(self) -> bool:
        """Whether the pod must end, so that nothing is started again."""
        return self._ending.is_set()

    def end(self, *, silent: bool = False) -> None:
        """Start nothing any more; `silent`: write nothing any more, too, as the node is gone."""
        self._silent = self._silent or silent
        self._ending.set()

    def pod(self) -> JsonObject:
        """Return the pod as it is now, or as it was last."""
        metadata = self._pod["metadata"]
        found = self.store.find("pods", metadata["namespace"], metadata["name"])
        if found is not None and found["metadata"]["uid"] == metadata["uid"]:
            self._pod = found
        return self._pod

    def edit(self, write: Callable[[JsonObject], None]) -> None:
        """Change the pod's status, unless it is gone or this node may no longer speak for it."""
        metadata = self._pod["metadata"]
        with self.store.lock, contextlib.suppress(ApiFailure):
            if self._silent:
                return
            with self.store.edit("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"]) as pod:
                write(pod)

    def pause(self, seconds: float) -> bool:
        """Wait as a kubelet does, by the cluster's scale; return whether the pod must end."""
        return self._ending.wait(seconds * self._wait_scale)

    def image(self, name: str) -> Image | None:
        """Return an image, or None when it cannot be pulled."""
        return None if self._faults.image_pull_fails(self.pod()) else self._images.get(name)

    def creation_fails(self) -> bool:
        """Return whether a fault stands in the way of creating containers."""
        return self._faults.container_creation_fails(self.pod())

    def log_file(self, container: str, restarts: int) -> Path:
        """Return where a run of a container is logged."""
        return log_file(self.folder, container, restarts)


def log_file(folder: Path, container: str, restarts: int) -> Path:
    """Return where a run of a container is logged, in its pod's folder."""
    return folder / f"{container}.{restarts}.log"
