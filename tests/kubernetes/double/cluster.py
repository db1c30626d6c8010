"""The way in: a whole cluster as one object, with the faults a test may inject."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kubernetes.cluster import Fault, Unsupported
from tests.kubernetes.double.api import Api
from tests.kubernetes.double.bootstrap import seed, write_kubeconfig
from tests.kubernetes.double.certificate import make_certificate
from tests.kubernetes.double.controllers import ControllerLoop
from tests.kubernetes.double.faults import Faults
from tests.kubernetes.double.garbage_collector import GarbageCollector
from tests.kubernetes.double.images import Image, this_environment
from tests.kubernetes.double.job_controller import JobController
from tests.kubernetes.double.kubelet import Kubelets
from tests.kubernetes.double.namespaces import NamespaceController
from tests.kubernetes.double.node_pools import DEFAULT_NODES
from tests.kubernetes.double.nodes import Node, NodeController
from tests.kubernetes.double.observer import Observer
from tests.kubernetes.double.pod_worker import PodWorker, eviction
from tests.kubernetes.double.record import Record
from tests.kubernetes.double.resources import BY_KIND, JsonObject
from tests.kubernetes.double.scheduler import Scheduler
from tests.kubernetes.double.server import ApiServer
from tests.kubernetes.double.store import Store
from tests.kubernetes.double.writes import Writer

__all__ = ["DoubleCluster"]


class DoubleCluster(Observer):
    """A cluster on this machine, for the protocol `Cluster`. Ends with `stop` or as a context manager.

    Attributes:
        kubeconfig: File for clients; in a folder that goes with the cluster.
        namespace: Where pods() and the like look; made at the start.
        image: Image of this project; containers in it find `dagster` and `python`.
        replica_image: The same, under another name.
    """

    can = frozenset(
        {
            "api-errors", "container-creation", "evict", "image-pull", "kill-process", "kill-run-worker",
            "indexed-jobs", "node-loss", "oom", "slow-api", "unschedulable",
        }
    )  # fmt: skip

    def __init__(
        self,
        *,
        nodes: Iterable[Node] = DEFAULT_NODES,
        images: Mapping[str, Image] | None = None,
        namespace: str = "batch",
        image: str = "batch-pipelines:test",
        replica_image: str = "batch-pipelines-replica:test",
        wait_scale: float = 0.02,
        toleration_scale: float = 1.0,
    ) -> None:
        """Start it; the API answers when this returns.

        Args:
            nodes: Its nodes.
            images: Further images, or others under the two names below.
            namespace: Namespace of the tests.
            image: Name of the project's image.
            replica_image: Name of the replicas' image.
            wait_scale: Factor for the waits of controllers and kubelets (back-off, collection of lost pods).
                What a manifest says (grace, deadlines, TTL) is not scaled.
            toleration_scale: Factor for a pod's tolerationSeconds of a lost node.
        """
        self.image, self.replica_image = image, replica_image
        # A short path: an engine's sockets in its TMPDIR have to fit into 107 characters.
        self._folder = Path(tempfile.mkdtemp(prefix="kd-"))
        store, record = Store(), Record()
        self._faults = Faults()
        known = {image: this_environment(), replica_image: this_environment(), **(images or {})}
        tls, authority = make_certificate(self._folder)
        service_environment: dict[str, str] = {}
        kubelets = Kubelets(
            store,
            faults=self._faults,
            images=known,
            folder=self._folder,
            service_environment=service_environment,
            wait_scale=wait_scale,
        )
        super().__init__(store, record, kubelets, namespace)
        self._nodes = NodeController(
            store, kubelets, wait_scale=wait_scale, toleration_scale=toleration_scale
        )
        seed(store, nodes, namespace)
        self._loop = ControllerLoop(
            store,
            [
                NamespaceController(store),
                JobController(store, wait_scale=wait_scale),
                Scheduler(store, self._faults),
                kubelets,
                self._nodes,
                GarbageCollector(store),
            ],
        )
        api = Api(
            store,
            record,
            folder_of=kubelets.folder_of,
            ended=lambda: self._loop.stopping,
        )
        token = secrets.token_urlsafe(24)
        self._server = ApiServer(api, record, self._faults, tls=tls, token=token)
        host, port = self._server.server_address[:2]
        service_environment.update(KUBERNETES_SERVICE_HOST=str(host), KUBERNETES_SERVICE_PORT=str(port))
        self.kubeconfig = self._folder / "kubeconfig"
        write_kubeconfig(self.kubeconfig, self._server.url, authority, token, namespace)
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def create(self, manifest: JsonObject) -> JsonObject:
        """Create an object of the cluster's, such as a PriorityClass, as a client would.

        Raises:
            ApiFailure: It is refused.
        """
        kind = BY_KIND[(manifest["apiVersion"], manifest["kind"])]
        namespace = manifest["metadata"].get("namespace", self.namespace) if kind.namespaced else ""
        return Writer(self._store, Record()).create(kind, namespace, manifest)

    def evict(self, pod: str) -> None:
        """Have the kubelet evict a pod for want of memory.

        Raises:
            Unsupported: It is on no node, or over.
        """
        found = self._get_pod(pod)
        if not self._kubelets.fail(found, eviction(found)):
            raise Unsupported(f"pod {pod} is on no node or has ended")

    def oom_kill(self, pod: str) -> None:
        """Have the kernel kill a pod's containers for memory.

        Raises:
            Unsupported: None of them runs.
        """
        self._kill(pod, oom=True)

    def kill_process(self, pod: str) -> None:
        """Kill a pod's containers with SIGKILL, as if from inside.

        Raises:
            Unsupported: None of them runs.
        """
        self._kill(pod, oom=False)

    def lose_node_of(self, pod: str) -> None:
        """Lose a pod's node.

        Raises:
            Unsupported: It is on none.
        """
        node = self._get_pod(pod)["spec"].get("nodeName")
        if not node:
            raise Unsupported(f"pod {pod} is on no node")
        self._nodes.lose(node)

    def add_fault(self, fault: Fault) -> None:
        """Let a fault stand."""
        self._faults.add(fault)

    def strikes(self, fault: Fault) -> int:
        """Return how many pods or requests a standing fault has struck."""
        return self._faults.strikes(fault)

    def clear_faults(self) -> None:
        """End all faults; lost nodes come back."""
        self._faults.clear()
        self._nodes.restore()

    def stop(self) -> None:
        """End everything: no process is left, and no file.

        Raises:
            RuntimeError: A controller of the double had failed.
        """
        if self._stopped:
            return
        self._stopped = True
        self._loop.stop()
        self._kubelets.stop()
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._loop.errors:
            raise RuntimeError("a controller of the double failed") from self._loop.errors[0]

    def _kill(self, pod: str, *, oom: bool) -> None:
        worker: PodWorker | None = self._kubelets.worker_of(self._get_pod(pod))
        if worker is None or not worker.kill(oom=oom):
            raise Unsupported(f"no container of pod {pod} runs")

    def _get_pod(self, name: str) -> JsonObject:
        return self._store.get("pods", self.namespace, name)
