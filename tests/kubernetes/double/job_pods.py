"""The pods of a Job: how they are made from its template, and how they are told apart."""

from __future__ import annotations

import copy

from tests.kubernetes.double.admission import admit_pod
from tests.kubernetes.double.defaults import set_pod_defaults
from tests.kubernetes.double.deletion import JOB_TRACKING
from tests.kubernetes.double.names import random_suffix
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["INDEX", "completed_indexes", "create_pod", "format_indexes", "is_indexed", "pod_index", "pods_of"]

INDEX = "batch.kubernetes.io/job-completion-index"
_LONGEST_BASE = 58


def is_indexed(job: JsonObject) -> bool:
    """Return whether its pods have indexes."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def pods_of(store: Store, job: JsonObject) -> list[JsonObject]:
    """Return the pods that a Job controls."""
    uid = job["metadata"]["uid"]

    def controlled(pod: JsonObject) -> bool:
        references = pod["metadata"].get("ownerReferences") or []
        return any(reference["uid"] == uid and reference.get("controller") for reference in references)

    return store.list("pods", job["metadata"]["namespace"], controlled)


def pod_index(pod: JsonObject) -> int:
    """Return a pod's completion index."""
    return int(pod["metadata"]["annotations"][INDEX])


def completed_indexes(job: JsonObject) -> set[int]:
    """Return the indexes that have succeeded."""
    found: set[int] = set()
    for part in filter(None, (job["status"].get("completedIndexes") or "").split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: set[int]) -> str:
    """Return indexes as a Job's status has them, such as `0-2,5`."""
    parts: list[str] = []
    for index in sorted(indexes):
        if index - 1 in indexes:
            continue
        last = index
        while last + 1 in indexes:
            last += 1
        middle = "-" if last > index + 1 else ","
        parts.append(str(index) if last == index else f"{index}{middle}{last}")
    return ",".join(parts)


def create_pod(store: Store, job: JsonObject, index: int | None) -> JsonObject:
    """Create one of a Job's pods.

    Raises:
        ApiFailure: It is not admitted.
    """
    metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
    own = template["metadata"]
    annotations = own.get("annotations") or {}
    base = f"{metadata['name']}-"
    if index is not None:
        annotations[INDEX] = own["labels"][INDEX] = str(index)
        end = f"-{index}-"
        base = metadata["name"][: _LONGEST_BASE - len(end)] + end
        template["spec"].setdefault("hostname", f"{metadata['name']}-{index}")
        _add_index_variable(template["spec"])
    base = base[:_LONGEST_BASE]
    pod: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": base,
            "labels": own["labels"],
            **({"annotations": annotations} if annotations else {}),
            "finalizers": [*(own.get("finalizers") or []), JOB_TRACKING],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"],
    }
    set_pod_defaults(pod)
    admit_pod(store, metadata["namespace"], pod)
    pod["metadata"]["name"] = base + random_suffix()
    return store.create("pods", metadata["namespace"], pod)


def _add_index_variable(spec: JsonObject) -> None:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        variables = container.setdefault("env", [])
        if all(variable["name"] != "JOB_COMPLETION_INDEX" for variable in variables):
            variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
