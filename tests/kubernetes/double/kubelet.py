"""The kubelets of all nodes: they take the pods that are scheduled, and answer for their processes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from tests.kubernetes.double.deletion import is_finished, remove_without_grace
from tests.kubernetes.double.faults import Faults
from tests.kubernetes.double.images import Image
from tests.kubernetes.double.pod_host import PodHost
from tests.kubernetes.double.pod_worker import Failure, PodWorker
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["Kubelets"]

_NODE_RESTARTED = "Pod was terminated in response to imminent node shutdown."


class Kubelets:
    """Runs the pods of nodes that are not lost."""

    def __init__(
        self,
        store: Store,
        *,
        faults: Faults,
        images: Mapping[str, Image],
        folder: Path,
        service_environment: Mapping[str, str],
        wait_scale: float,
    ) -> None:
        self._store = store
        self._faults = faults
        self._images = images
        self._folder = folder
        self._service_environment = service_environment
        self._wait_scale = wait_scale
        self._workers: dict[str, PodWorker] = {}
        self._taken: list[tuple[str, str]] = []
        self._lost_nodes: set[str] = set()
        self._addresses = (f"127.1.{number // 250}.{number % 250 + 2}" for number in count())
        self._stopped = False

    def reconcile(self) -> None:
        """Take new pods and have running ones follow the API."""
        with self._store.lock:
            if self._stopped:
                return
            pods = {pod["metadata"]["uid"]: pod for pod in self._store.list("pods")}
            for uid, pod in pods.items():
                node = pod["spec"].get("nodeName")
                if not node or node in self._lost_nodes or self._store.find("nodes", "", node) is None:
                    continue
                if uid not in self._workers:
                    self._take(pod)
            for uid, worker in list(self._workers.items()):
                worker.reconcile(pods.get(uid))
                if worker.done and uid not in pods:
                    del self._workers[uid]

    def worker_of(self, pod: JsonObject) -> PodWorker | None:
        """Return what runs a pod."""
        with self._store.lock:
            return self._workers.get(pod["metadata"]["uid"])

    def folder_of(self, uid: str) -> Path:
        """Return a pod's folder. It outlives the pod: its logs are for whoever looks into a failed test."""
        return self._folder / uid[:13]

    def folders_of_name(self, name: str) -> list[Path]:
        """Return the folders of all pods that have had a name, oldest first."""
        with self._store.lock:
            return [self.folder_of(uid) for taken, uid in self._taken if taken == name]

    def pids(self) -> list[int]:
        """Process ids of all commands that run."""
        with self._store.lock:
            return [pid for worker in self._workers.values() for pid in worker.pids]

    def lose_node(self, node: str) -> None:
        """Kill all processes of a node, tell nothing, and take no pod there."""
        with self._store.lock:
            self._lost_nodes.add(node)
            for pod in self._store.list("pods"):
                worker = self._workers.get(pod["metadata"]["uid"])
                if worker and pod["spec"].get("nodeName") == node and not worker.done:
                    worker.lose()

    def restore_node(self, node: str) -> None:
        """Have a node come back: its pods' processes are gone, and now it says so."""
        with self._store.lock:
            self._lost_nodes.discard(node)
            for pod in self._store.list("pods"):
                if pod["spec"].get("nodeName") != node or is_finished(pod):
                    continue
                metadata = pod["metadata"]
                with self._store.edit("pods", metadata["namespace"], metadata["name"]) as edited:
                    edited["status"].update(phase="Failed", reason="Terminated", message=_NODE_RESTARTED)
                if metadata.get("deletionTimestamp"):
                    remove_without_grace(self._store, edited)

    def stop(self) -> None:
        """End every process and wait until it is gone."""
        with self._store.lock:
            self._stopped = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.lose()
        for worker in workers:
            worker.join(10)

    def fail(self, pod: JsonObject, failure: Failure) -> bool:
        """Fail a pod at once; return whether it was running here."""
        worker = self.worker_of(pod)
        if worker is None or worker.done:
            return False
        worker.fail(failure)
        return True

    def _take(self, pod: JsonObject) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if is_finished(pod):
            return
        self._taken.append((pod["metadata"]["name"], uid))
        folder = self.folder_of(uid)
        folder.mkdir(parents=True, exist_ok=True)
        host = PodHost(
            self._store,
            pod,
            faults=self._faults,
            images=self._images,
            folder=folder,
            service_environment=self._service_environment,
            wait_scale=self._wait_scale,
        )
        address = next(self._addresses)
        node_address = self._store.get("nodes", "", node)["status"]["addresses"][0]["address"]
        self._workers[uid] = PodWorker(host, pod, host_ip=node_address, pod_ip=address)
