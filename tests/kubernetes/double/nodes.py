"""Nodes: what they claim to have, and what becomes of the pods of one that is lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.conditions import set_condition
from tests.kubernetes.double.deletion import delete, is_finished, remove_without_grace
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.events import EventRecorder
from tests.kubernetes.double.kubelet import Kubelets
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.scheduling_rules import tolerates
from tests.kubernetes.double.store import Store

__all__ = ["Node", "NodeController"]

_UNREACHABLE = "node.kubernetes.io/unreachable"
_POD_COLLECTION_SEC = 20
_UNKNOWN = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
_NODE_INFO = {
    "architecture": "amd64",
    "containerRuntimeVersion": "double://1",
    "kubeletVersion": "v1.32.0-double",
    "operatingSystem": "linux",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node to be.

    Attributes:
        name: Its name.
        allocatable: Quantities by resource; claims, not this machine's.
        labels: Labels beside the usual ones.
        taints: Taints, as in a node's spec.
    """

    name: str
    allocatable: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()

    def manifest(self) -> JsonObject:
        """The node's object."""
        allocatable = {"pods": "110", **self.allocatable}
        return {
            "metadata": {
                "name": self.name,
                "labels": {
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    **self.labels,
                },
            },
            "spec": {"taints": [dict(taint) for taint in self.taints]} if self.taints else {},
            "status": {
                "capacity": allocatable,
                "allocatable": allocatable,
                "conditions": [_ready("True", "KubeletReady", "kubelet is posting ready status")],
                "addresses": [
                    {"type": "InternalIP", "address": "127.0.0.1"},
                    {"type": "Hostname", "address": self.name},
                ],
                "nodeInfo": {**dict.fromkeys(_UNKNOWN, ""), **_NODE_INFO},
            },
        }


class NodeController:
    """Loses nodes and brings them back."""

    def __init__(
        self, store: Store, kubelets: Kubelets, *, wait_scale: float, toleration_scale: float
    ) -> None:
        self._store = store
        self._kubelets = kubelets
        self._events = EventRecorder(store, "node-controller")
        self._collect_after_sec = _POD_COLLECTION_SEC * wait_scale
        self._toleration_scale = toleration_scale
        self._lost: dict[str, float] = {}
        self._doomed: dict[str, float] = {}

    def lose(self, name: str) -> None:
        """Lose a node: its processes end in secret, its pods look as before, and it is not ready.

        The 40 s in which a real cluster does not notice are left out.
        """
        with self._store.lock:
            if name in self._lost:
                return
            self._kubelets.lose_node(name)
            with self._store.edit("nodes", "", name) as node:
                node["status"]["conditions"] = [
                    _ready("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
                ]
                taints = [
                    {"key": _UNREACHABLE, "effect": effect, "timeAdded": now()}
                    for effect in ("NoSchedule", "NoExecute")
                ]
                node["spec"]["taints"] = [*(node["spec"].get("taints") or []), *taints]
            self._lost[name] = time.monotonic()
            for pod in self._pods_of(name):
                with self._edit(pod) as edited:
                    set_condition(edited, "Ready", "False")
                self._events.warning(pod, "NodeNotReady", "Node is not ready")

    def restore(self) -> None:
        """Have all lost nodes come back, without the pods that ran there."""
        with self._store.lock:
            for name in self._lost:
                with contextlib.suppress(ApiFailure), self._store.edit("nodes", "", name) as node:
                    left = [taint for taint in node["spec"]["taints"] if taint["key"] != _UNREACHABLE]
                    node["spec"]["taints"] = left
                    node["status"]["conditions"] = [
                        _ready("True", "KubeletReady", "kubelet is posting ready status")
                    ]
                self._kubelets.restore_node(name)
            self._lost.clear()

    def reconcile(self) -> None:
        """Delete pods whose toleration of a lost node is over, and collect those that were deleted there.

        A real cluster does the latter when the cloud has removed the node.
        """
        with self._store.lock:
            for name, since in self._lost.items():
                for pod in self._pods_of(name):
                    with contextlib.suppress(ApiFailure):
                        self._follow(pod, time.monotonic() - since)

    def _follow(self, pod: JsonObject, lost_for_sec: float) -> None:
        metadata = pod["metadata"]
        where = f"{metadata['namespace']}/{metadata['name']}"
        if not metadata.get("deletionTimestamp"):
            seconds = _tolerated_sec(pod)
            if seconds is None or lost_for_sec < seconds * self._toleration_scale:
                return
            self._events.normal(pod, "TaintManagerEviction", f"Marking for deletion Pod {where}")
            with self._edit(pod) as edited:
                why = "Taint manager: deleting due to NoExecute taint"
                set_condition(edited, "DisruptionTarget", "True", "DeletionByTaintManager", why)
            delete(self._store, "pods", metadata["namespace"], metadata["name"])
            return
        doomed = self._doomed.setdefault(metadata["uid"], time.monotonic())
        if time.monotonic() - doomed < self._collect_after_sec:
            return
        with self._edit(pod) as edited:
            edited["status"]["phase"] = "Failed"
            why = "PodGC: node no longer exists"
            set_condition(edited, "DisruptionTarget", "True", "DeletionByPodGC", why)
        remove_without_grace(self._store, pod)

    def _pods_of(self, node: str) -> list[JsonObject]:
        return self._store.list(
            "pods", matching=lambda pod: pod["spec"].get("nodeName") == node and not is_finished(pod)
        )

    def _edit(self, pod: JsonObject) -> contextlib.AbstractContextManager[JsonObject]:
        return self._store.edit("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def _tolerated_sec(pod: JsonObject) -> float | None:
    taint = {"key": _UNREACHABLE, "effect": "NoExecute"}
    matching = [one for one in pod["spec"].get("tolerations") or [] if tolerates([one], taint)]
    if not matching:
        return 0
    seconds = [one["tolerationSeconds"] for one in matching if one.get("tolerationSeconds") is not None]
    return min(seconds) if seconds else None


def _ready(status: str, reason: str, message: str) -> JsonObject:
    moment = now()
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }
