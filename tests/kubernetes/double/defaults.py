"""Fields that an API server fills in."""

from __future__ import annotations

import base64
import uuid
from typing import Any

from tests.kubernetes.double.resources import JsonObject

__all__ = ["set_defaults", "set_job_defaults", "set_pod_defaults", "set_pod_spec_defaults", "without_nulls"]


def set_defaults(plural: str, obj: JsonObject) -> None:
    """Fill in an object that is about to be kept for the first time."""
    metadata = obj["metadata"]
    for field in (
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "selfLink",
    ):
        metadata.pop(field, None)
    if plural in ("pods", "jobs"):
        obj.pop("status", None)
    match plural:
        case "pods":
            set_pod_defaults(obj)
        case "jobs":
            set_job_defaults(obj)
        case "namespaces":
            obj["status"] = {"phase": "Active"}
            metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata.get("name", "")
        case "secrets":
            _encode_strings(obj)
        case "persistentvolumeclaims":
            obj["status"] = {"phase": "Bound"}


def without_nulls(value: Any) -> Any:
    """Return JSON without the fields that are null: to an API server they are not there."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def set_pod_defaults(pod: JsonObject) -> None:
    """Fill in a pod."""
    set_pod_spec_defaults(pod["spec"])
    pod["spec"].setdefault("restartPolicy", "Always")
    pod["spec"].setdefault("serviceAccountName", "default")
    pod["spec"].setdefault("priority", 0)
    pod["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = pod["spec"].setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates_key(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    pod["status"] = {"phase": "Pending", "qosClass": _quality(pod["spec"])}


def set_pod_spec_defaults(spec: JsonObject) -> None:
    """Fill in what a pod and a pod's template have in common."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        pinned = "@" in container["image"] or tag not in ("", "latest")
        container.setdefault("imagePullPolicy", "IfNotPresent" if pinned else "Always")
        resources = container.setdefault("resources", {})
        for name, amount in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)
        for variable in container.get("env") or []:
            field = (variable.get("valueFrom") or {}).get("fieldRef")
            if field:
                field.setdefault("apiVersion", "v1")


def set_job_defaults(job: JsonObject) -> None:
    """Fill in a Job; its uid is set here, as its labels and its selector need it."""
    spec, metadata = job["spec"], job["metadata"]
    metadata["uid"] = str(uuid.uuid4())
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    for field, value in (
        ("parallelism", 1),
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("podReplacementPolicy", "TerminatingOrFailed"),
        ("manualSelector", False),
    ):
        if spec.get(field) is None:
            spec[field] = value
    template = spec["template"]
    set_pod_spec_defaults(template["spec"])
    own = template.setdefault("metadata", {})
    own["labels"] = {
        **(own.get("labels") or {}),
        "controller-uid": metadata["uid"],
        "job-name": metadata["name"],
        "batch.kubernetes.io/controller-uid": metadata["uid"],
        "batch.kubernetes.io/job-name": metadata["name"],
    }
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}
    job["status"] = {}


def _tolerates_key(toleration: dict[str, Any], key: str) -> bool:
    if toleration.get("effect") not in (None, "", "NoExecute"):
        return False
    return toleration.get("key") in (None, "", key)


def _quality(spec: JsonObject) -> str:
    resources = [container.get("resources") or {} for container in spec["containers"]]
    if not any(one.get("requests") or one.get("limits") for one in resources):
        return "BestEffort"
    guaranteed = all(
        (one.get("limits") or {}).get(name) is not None and one["limits"][name] == one["requests"].get(name)
        for one in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _encode_strings(secret: JsonObject) -> None:
    for key, text in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    secret.setdefault("type", "Opaque")
