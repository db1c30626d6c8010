"""The scheduler: gives pods that wait a node, or says why there is none."""

from __future__ import annotations

import contextlib
from fractions import Fraction

from tests.kubernetes.double.conditions import condition, set_condition
from tests.kubernetes.double.deletion import is_finished
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.events import EventRecorder
from tests.kubernetes.double.faults import Faults
from tests.kubernetes.double.quantities import add_quantities
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.scheduling_rules import failed_scheduling, pod_requests, why_not
from tests.kubernetes.double.store import Store
from tests.kubernetes.double.volumes import missing_claim

__all__ = ["Scheduler"]

_GATED = "Scheduling is blocked due to non-empty scheduling gates"


class Scheduler:
    """Places pods on nodes: the first one that takes it and has the most room by pods."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._events = EventRecorder(store, "default-scheduler")

    def reconcile(self) -> None:
        """Try every pod that has no node, high priority and old ones first."""
        with self._store.lock:
            waiting = [
                pod
                for pod in self._store.list("pods")
                if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
            ]
            if not waiting:
                return
            used = self._used()
            for pod in sorted(waiting, key=_order):
                with contextlib.suppress(ApiFailure):
                    self._place(pod, used)

    def _place(self, pod: JsonObject, used: dict[str, dict[str, Fraction]]) -> None:
        if pod["spec"].get("schedulingGates"):
            self._hold(pod, "SchedulingGated", _GATED)
            return
        nodes = self._store.list("nodes")
        missing = missing_claim(self._store, pod)
        if missing:
            reasons = {node["metadata"]["name"]: [missing] for node in nodes}
        elif self._faults.unschedulable(pod):
            reasons = {node["metadata"]["name"]: ["Insufficient cpu"] for node in nodes}
        else:
            reasons = {
                node["metadata"]["name"]: why_not(pod, node, used[node["metadata"]["name"]]) for node in nodes
            }
        fitting = [name for name, why in reasons.items() if not why]
        if not fitting:
            message = failed_scheduling(reasons.values(), len(nodes), for_all=missing)
            if self._hold(pod, "Unschedulable", message):
                self._events.warning(pod, "FailedScheduling", message)
            return
        name = min(fitting, key=lambda one: (used[one].get("pods", 0), one))
        with self._edit(pod) as edited:
            edited["spec"]["nodeName"] = name
            set_condition(edited, "PodScheduled", "True")
        add_quantities(used[name], pod_requests(pod))
        where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self._events.normal(pod, "Scheduled", f"Successfully assigned {where} to {name}")

    def _hold(self, pod: JsonObject, reason: str, message: str) -> bool:
        before = condition(pod, "PodScheduled") or {}
        if (before.get("reason"), before.get("message")) == (reason, message):
            return False
        with self._edit(pod) as edited:
            set_condition(edited, "PodScheduled", "False", reason, message)
        return True

    def _edit(self, pod: JsonObject) -> contextlib.AbstractContextManager[JsonObject]:
        metadata = pod["metadata"]
        return self._store.edit("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"])

    def _used(self) -> dict[str, dict[str, Fraction]]:
        used: dict[str, dict[str, Fraction]] = {
            node["metadata"]["name"]: {} for node in self._store.list("nodes")
        }
        for pod in self._store.list("pods"):
            node = pod["spec"].get("nodeName")
            if node in used and not is_finished(pod):
                add_quantities(used[node], pod_requests(pod))
        return used


def _order(pod: JsonObject) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    return -int(pod["spec"].get("priority") or 0), metadata["creationTimestamp"], metadata["name"]
