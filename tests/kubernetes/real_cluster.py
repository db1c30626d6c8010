"""A real cluster as scenarios see it: what its API offers, and faults that commands in pods bring about.

How the tests come by one, and what is set up on it, is in `tests.kubernetes.real_setup`.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from batch_pipelines.hardware.quantities import parse_bytes
from tests.kubernetes.cluster import Fault, Unsupported
from tests.support.processes import wait_until

__all__ = ["RealCluster"]

_FAULT_SEC: Final = 90.0
# The likeliest victim of an OOM kill is process 1 then: each of those that take the memory has only a part.
_TAKE_MEMORY: Final = """
import os
open("/proc/1/oom_score_adj", "w").write("1000")
taken = []
for _ in range(3):
    os.fork()
while True:
    taken.append(b"x" * 2**22)
"""
# From the node's side: process 1 takes no signal from inside its container.
_KILL: Final = """
import os, pathlib, sys
for place in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if sys.argv[1] in (place / "cgroup").read_text():
            line = next(line for line in (place / "status").open() if line.startswith("NSpid:"))
            if line.split()[-1] == "1":
                os.kill(int(place.name), 9)
                sys.exit(0)
    except OSError:
        continue
sys.exit("no such container")
"""
_TAKE_STORAGE: Final = """
import os, sys
with open("/tmp/taken", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, int(sys.argv[1]))
"""
_MOST_STORAGE: Final = 20 * 2**30


@dataclass(frozen=True)
class RealCluster:
    """See `tests.kubernetes.cluster.Cluster`.

    Attributes:
        launcher: What K8sRunLauncher is told for this cluster.
        environment: Variables of a deployment on it.
    """

    kubeconfig: Path
    namespace: str
    image: str
    replica_image: str
    connection: client.ApiClient
    launcher: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    can: frozenset[str] = frozenset({"evict", "oom", "kill-process", "kill-run-worker"})

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """Pods of the namespace."""
        return self._items(client.CoreV1Api(self.connection).list_namespaced_pod, selector)

    def jobs(self, selector: str = "") -> list[dict[str, Any]]:
        """Jobs of the namespace."""
        return self._items(client.BatchV1Api(self.connection).list_namespaced_job, selector)

    def live_pods(self, selector: str = "") -> list[str]:
        """Names of pods that neither succeeded nor failed, or that are being deleted."""
        return [
            str(pod["metadata"]["name"])
            for pod in self.pods(selector)
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
            or "deletionTimestamp" in pod["metadata"]
        ]

    def evict(self, pod: str) -> None:
        """Have the kubelet evict it, for writing more than its `ephemeral-storage` limit.

        Raises:
            Unsupported: It has no such limit, or one too large to be filled here. The Eviction API would
                delete it, which is another thing: tests of that call it themselves.
        """
        limit = self._limit(pod, "ephemeral-storage")
        if limit is None or limit > _MOST_STORAGE:
            raise Unsupported(f"pod {pod} has no ephemeral-storage limit that could be filled: {limit}")
        self._run(pod, ["python3", "-c", _TAKE_STORAGE, str(limit + 2**20)])
        self._wait_until_ended(pod)

    def oom_kill(self, pod: str) -> None:
        """Have the kernel kill its container, by taking all memory of its limit."""
        if self._limit(pod, "memory") is None:
            raise Unsupported(f"pod {pod} has no memory limit")
        self._run(pod, ["python3", "-c", _TAKE_MEMORY])
        self._wait_until_ended(pod)

    def kill_process(self, pod: str) -> None:
        """Kill its container's main process with SIGKILL, by a privileged pod on its node."""
        found = self._pod(pod)
        assert found is not None, f"there is no pod {pod}"
        container = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        name = f"kill-{uuid.uuid4().hex[:8]}"
        killer = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": self.launcher.get("image_pull_policy", "IfNotPresent"),
            "command": ["python3", "-c", _KILL, container],
            "securityContext": {"privileged": True, "runAsUser": 0},
        }
        spec = {
            "nodeName": found["spec"]["nodeName"],
            "hostPID": True,
            "restartPolicy": "Never",
            "containers": [killer],
        }
        core = client.CoreV1Api(self.connection)
        core.create_namespaced_pod(self.namespace, {"metadata": {"name": name}, "spec": spec})
        self._wait_until_ended(name)
        if (self._pod(name) or {})["status"]["phase"] != "Succeeded":
            raise RuntimeError(
                f"pod {pod} was not killed: {core.read_namespaced_pod_log(name, self.namespace)}"
            )
        core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)
        self._wait_until_ended(pod)

    def lose_node_of(self, pod: str) -> None:
        """Not by the API."""
        raise Unsupported(f"the node of {pod} cannot be taken away by the API")

    def add_fault(self, fault: Fault) -> None:
        """Not by the API."""
        raise Unsupported(f"a real cluster cannot be made to do this: {fault}")

    def clear_faults(self) -> None:
        """There are none."""

    def _items(self, call: Callable[..., Any], selector: str) -> list[dict[str, Any]]:
        answer = call(self.namespace, label_selector=selector, _preload_content=False)
        items: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return items

    def _pod(self, name: str) -> dict[str, Any] | None:
        return next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None)

    def _limit(self, pod: str, resource: str) -> int | None:
        found = self._pod(pod)
        limits = found["spec"]["containers"][0].get("resources", {}).get("limits", {}) if found else {}
        return parse_bytes(limits[resource], resource) if resource in limits else None

    def _run(self, pod: str, command: Sequence[str]) -> None:
        """Run a command in a pod, which may end by it."""
        kubectl = ["kubectl", "--kubeconfig", str(self.kubeconfig), "exec", pod, "--"]
        done = subprocess.run(
            [*kubectl, *command], capture_output=True, text=True, timeout=_FAULT_SEC, check=False
        )
        if "Traceback" in done.stderr:
            raise RuntimeError(f"in pod {pod}: {done.stderr}")

    def _wait_until_ended(self, name: str) -> None:
        wait_until(lambda: name not in self.live_pods(), within_sec=_FAULT_SEC, every_sec=0.5)
