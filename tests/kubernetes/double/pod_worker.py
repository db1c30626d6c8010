"""A pod's way on a node, from ContainerCreating to its phase, and the ways that it is ended from outside."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.conditions import set_condition
from tests.kubernetes.double.containers import Container
from tests.kubernetes.double.deletion import is_finished, remove_without_grace
from tests.kubernetes.double.pod_host import PodHost
from tests.kubernetes.double.pod_status import begin, fail_pod, finish
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.volumes import volume_problem

__all__ = ["Failure", "PodWorker", "eviction"]

_VOLUME_RETRY_SEC = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a kubelet fails a pod on its own account."""

    reason: str
    message: str
    disruption: str = ""


def eviction(pod: JsonObject) -> Failure:
    """Return what a kubelet says that is short of memory."""
    container = pod["spec"]["containers"][0]["name"]
    message = (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. "
        f"Container {container} was using 1Gi, request is 0, has larger consumption of memory. "
    )
    return Failure("Evicted", message, disruption="TerminationByKubelet")


class PodWorker:
    """Runs one pod in a thread of its own."""

    def __init__(self, host: PodHost, pod: JsonObject, *, host_ip: str, pod_ip: str) -> None:
        self._host = host
        self._addresses = (host_ip, pod_ip)
        self._inits = [Container(host, spec, init=True) for spec in pod["spec"].get("initContainers") or []]
        self._containers = [Container(host, spec) for spec in pod["spec"]["containers"]]
        self._deadline_sec: int | None = pod["spec"].get("activeDeadlineSeconds")
        self._grace_sec: int = pod["spec"].get("terminationGracePeriodSeconds", 30)
        self._failure: Failure | None = None
        self._stopped_with: float | None = None
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"pod {pod['metadata']['name']}", daemon=True)
        self._thread.start()

    @property
    def pids(self) -> list[int]:
        """Process ids of the commands that run."""
        return [one.pid for one in [*self._inits, *self._containers] if one.pid is not None]

    @property
    def done(self) -> bool:
        """Whether nothing of it runs any more."""
        return not self._thread.is_alive()

    def reconcile(self, pod: JsonObject | None) -> None:
        """Follow what the API says: the pod is being deleted, is gone, or has lived too long."""
        if pod is None:
            self._stop(0)
            return
        if pod["metadata"].get("deletionTimestamp"):
            self._stop(pod["metadata"]["deletionGracePeriodSeconds"])
        elif self._deadline_sec is not None and time.monotonic() - self._began > self._deadline_sec:
            self.fail(
                Failure("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
                grace_sec=self._grace_sec,
            )

    def fail(self, failure: Failure, *, grace_sec: float = 0) -> None:
        """Fail the pod; it stays as an object."""
        if self._failure is None:
            self._failure = failure
            self._host.events.warning(self._host.pod(), failure.reason, failure.message)
        self._stop(grace_sec)

    def lose(self) -> None:
        """The node is lost: all processes are killed and nothing is told."""
        self._host.end(silent=True)
        self._stop(0)

    def kill(self, *, oom: bool = False) -> bool:
        """Kill the containers that run now, as the kernel does; return whether one did."""
        return any([one.kill(oom=oom) for one in [*self._inits, *self._containers]])

    def join(self, within_sec: float) -> None:
        """Wait for its end."""
        self._thread.join(within_sec)

    def _stop(self, grace_sec: float) -> None:
        if self._stopped_with is not None and grace_sec >= self._stopped_with:
            return
        if self._stopped_with is None and not self._failure and self.pids and grace_sec:
            for spec in self._host.pod()["spec"]["containers"]:
                self._host.events.normal(self._host.pod(), "Killing", f"Stopping container {spec['name']}")
        self._stopped_with = grace_sec
        self._host.end()
        for container in [*self._inits, *self._containers]:
            container.stop(grace_sec)

    def _run(self) -> None:
        moment = now()
        self._host.edit(lambda pod: begin(pod, *self._addresses, moment))
        if self._volumes_ready() and self._inits_done():
            threads = [
                threading.Thread(target=container.run, name="container", daemon=True)
                for container in self._containers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self._host.edit(self._write_end)
        if self._host.pod()["metadata"].get("deletionTimestamp") and is_finished(self._host.pod()):
            remove_without_grace(self._host.store, self._host.pod())

    def _volumes_ready(self) -> bool:
        while not self._host.ending:
            problem = volume_problem(self._host.store, self._host.pod())
            if not problem:
                return True
            self._host.events.warning(self._host.pod(), "FailedMount", problem)
            self._host.pause(_VOLUME_RETRY_SEC)
        return False

    def _inits_done(self) -> bool:
        return all(container.run() == 0 for container in self._inits)

    def _write_end(self, pod: JsonObject) -> None:
        if self._failure is None:
            finish(pod)
            return
        fail_pod(pod, self._failure.reason, self._failure.message)
        if self._failure.disruption:
            set_condition(pod, "DisruptionTarget", "True", self._failure.disruption, self._failure.message)
