"""Checks of a new pod against other objects, as the API server's admission plugins do them."""

from __future__ import annotations

from tests.kubernetes.double.errors import forbidden, not_found
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["admit_pod", "require_namespace"]


def require_namespace(store: Store, namespace: str) -> None:
    """Check that objects may be made in a namespace.

    Raises:
        ApiFailure: It does not exist (404) or is going (403).
    """
    found = store.find("namespaces", "", namespace)
    if found is None:
        raise not_found("namespaces", namespace)
    if found["metadata"].get("deletionTimestamp"):
        raise forbidden(
            "namespaces", namespace, "unable to create new content because it is being terminated"
        )


def admit_pod(store: Store, namespace: str, pod: JsonObject) -> None:
    """Check a pod's references and fill in its priority.

    Raises:
        ApiFailure: 403, its ServiceAccount or PriorityClass does not exist.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    name = metadata.get("name") or metadata["generateName"]
    account = spec.get("serviceAccountName") or "default"
    if store.find("serviceaccounts", namespace, account) is None:
        raise forbidden(
            "pods",
            name,
            f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found',
        )
    spec.setdefault("serviceAccount", account)
    wanted = spec.get("priorityClassName")
    if not wanted:
        defaults = store.list("priorityclasses", matching=lambda one: bool(one.get("globalDefault")))
        spec["priority"] = defaults[0]["value"] if defaults else 0
        return
    priority_class = store.find("priorityclasses", "", wanted)
    if priority_class is None:
        raise forbidden("pods", name, f"no PriorityClass with name {wanted} was found")
    if spec.get("priority") not in (None, 0, priority_class["value"]):
        raise forbidden("pods", name, "the integer value of priority must not be provided in pod spec")
    spec["priority"] = priority_class["value"]
    if priority_class.get("preemptionPolicy"):
        spec["preemptionPolicy"] = priority_class["preemptionPolicy"]
