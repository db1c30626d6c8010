"""Whether a node takes a pod: taints, affinity, resources; and how the scheduler words that none does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from tests.kubernetes.double.quantities import add_quantities, quantities
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.selectors import match_expression

__all__ = ["failed_scheduling", "pod_requests", "tolerates", "why_not"]

Json = Mapping[str, Any]


def pod_requests(pod: Json) -> dict[str, Fraction]:
    """Return what a pod asks a node for: its containers together, or its largest init container."""
    requests: dict[str, Fraction] = {}
    for container in pod["spec"]["containers"]:
        add_quantities(requests, quantities((container.get("resources") or {}).get("requests")))
    for container in pod["spec"].get("initContainers") or []:
        for name, amount in quantities((container.get("resources") or {}).get("requests")).items():
            requests[name] = max(requests.get(name, Fraction(0)), amount)
    return {**requests, "pods": Fraction(1)}


def tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    """Return whether one of the tolerations is for the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def why_not(pod: Json, node: JsonObject, used: Mapping[str, Fraction]) -> list[str]:
    """Return why a node does not take a pod, in the scheduler's words; empty when it does.

    Args:
        pod: The pod.
        node: The node.
        used: What the pods there ask for already.
    """
    if node["spec"].get("unschedulable"):
        return ["node(s) were unschedulable"]
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] == "PreferNoSchedule" or tolerates(pod["spec"].get("tolerations") or [], taint):
            continue
        told = f"{taint['key']}: {taint['value']}" if taint.get("value") else f"{taint['key']}: "
        return [f"node(s) had untolerated taint {{{told}}}"]
    if not _affinity_met(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = quantities(node["status"]["allocatable"])
    lacking = []
    for name, amount in pod_requests(pod).items():
        free = allocatable.get(name, Fraction(0)) - used.get(name, Fraction(0))
        if amount and amount > free:
            lacking.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return lacking


def failed_scheduling(reasons: Iterable[Iterable[str]], nodes: int, *, for_all: str = "") -> str:
    """Return the scheduler's message when no node takes a pod; `for_all`: why it looked at none."""
    counts = Counter(reason for of_a_node in reasons for reason in of_a_node)
    told = for_all or ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    if not nodes:
        return "no nodes available to schedule pods"
    return (
        f"0/{nodes} nodes are available: {told}. preemption: 0/{nodes} nodes are available: "
        f"{nodes} Preemption is not helpful for scheduling."
    )


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _affinity_met(pod: Json, node: JsonObject) -> bool:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_met(term, node, labels) for term in required["nodeSelectorTerms"])


def _term_met(term: Json, node: JsonObject, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False  # an empty term matches nothing
    name = {"metadata.name": node["metadata"]["name"]}
    return all(_met(labels, one) for one in expressions) and all(_met(name, one) for one in fields)


def _met(labels: Mapping[str, str], expression: Json) -> bool:
    return match_expression(labels, expression["key"], expression["operator"], expression.get("values") or [])
