"""Deleting objects: grace for pods, finalizers, and what becomes of the objects that they own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.double.clock import from_now
from tests.kubernetes.double.errors import ApiFailure, bad_request
from tests.kubernetes.double.resources import BY_PLURAL, JsonObject
from tests.kubernetes.double.store import Store

__all__ = [
    "FOREGROUND",
    "JOB_TRACKING",
    "DeleteOptions",
    "delete",
    "drop_finalizer",
    "is_finished",
    "owned_by",
    "remove_without_grace",
]

FOREGROUND = "foregroundDeletion"
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
_POLICIES = ("Orphan", "Background", "Foreground")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a DELETE may say."""

    propagation: str | None = None
    grace_sec: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False

    @classmethod
    def parse(cls, query: Mapping[str, str], body: Mapping[str, Any] | None) -> DeleteOptions:
        """Read them from the body and, after it, the query."""
        body = body or {}
        preconditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
        if body.get("orphanDependents") is not None:
            propagation = "Orphan" if body["orphanDependents"] else "Background"
        if propagation and propagation not in _POLICIES:
            raise bad_request(f"propagationPolicy: Unsupported value: {propagation!r}")
        return cls(
            propagation=propagation,
            grace_sec=None if grace is None else int(grace),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            dry_run=bool(body.get("dryRun") or query.get("dryRun")),
        )


def is_finished(pod: JsonObject) -> bool:
    """Return whether a pod's containers have ended for good."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def owned_by(owner: JsonObject, obj: JsonObject) -> bool:
    """Return whether an object names another one as its owner."""
    references = obj["metadata"].get("ownerReferences") or []
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def delete(
    store: Store, plural: str, namespace: str, name: str, options: DeleteOptions = DeleteOptions()
) -> JsonObject:
    """Delete an object, now or when its grace and its finalizers allow it.

    Returns:
        The object as it was last.

    Raises:
        ApiFailure: There is none, or a precondition does not hold.
    """
    with store.lock:
        obj = store.get(plural, namespace, name)
        _check_preconditions(obj, options)
        if options.dry_run:
            return obj
        # batch/v1 keeps a Job's pods when nothing is said, "for backward compatibility"; no other kind does.
        propagation = options.propagation or ("Orphan" if plural == "jobs" else "Background")
        if propagation == "Orphan":
            _orphan_dependents(store, obj)
        with store.edit(plural, namespace, name) as edited:
            if plural == "namespaces":
                edited["status"]["phase"] = "Terminating"
                edited["metadata"].setdefault("finalizers", ["kubernetes"])  # the collector empties it first
            _mark(plural, edited, options, foreground=propagation == "Foreground")
        return store.find(plural, namespace, name) or edited


def _mark(plural: str, obj: JsonObject, options: DeleteOptions, *, foreground: bool) -> None:
    metadata = obj["metadata"]
    grace = _pod_grace(obj, options) if plural == "pods" else 0
    if foreground and FOREGROUND not in metadata.setdefault("finalizers", []):
        metadata["finalizers"].append(FOREGROUND)
    if metadata.get("deletionTimestamp"):
        if plural == "pods" and grace < metadata["deletionGracePeriodSeconds"]:
            metadata.update(deletionTimestamp=from_now(grace), deletionGracePeriodSeconds=grace)
        return
    metadata["deletionTimestamp"] = from_now(grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if not metadata.get("finalizers"):
        metadata.pop("finalizers", None)


def _pod_grace(pod: JsonObject, options: DeleteOptions) -> int:
    # No kubelet has it, or its containers have ended: there is nobody to wait for.
    if not pod["spec"].get("nodeName") or is_finished(pod):
        return 0
    if options.grace_sec is not None:
        return max(options.grace_sec, 0)
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))


def _orphan_dependents(store: Store, owner: JsonObject) -> None:
    for plural in BY_PLURAL:
        for dependent in store.list(plural, owner["metadata"].get("namespace", "")):
            if not owned_by(owner, dependent):
                continue
            metadata = dependent["metadata"]
            with store.edit(plural, metadata.get("namespace", ""), metadata["name"]) as edited:
                rest = [
                    reference
                    for reference in edited["metadata"]["ownerReferences"]
                    if reference["uid"] != owner["metadata"]["uid"]
                ]
                edited["metadata"].pop("ownerReferences")
                if rest:
                    edited["metadata"]["ownerReferences"] = rest
                drop_finalizer(edited, JOB_TRACKING)


def drop_finalizer(obj: JsonObject, name: str) -> None:
    """Take a finalizer from an object that is being edited."""
    left = [finalizer for finalizer in obj["metadata"].get("finalizers") or [] if finalizer != name]
    obj["metadata"].pop("finalizers", None)
    if left:
        obj["metadata"]["finalizers"] = left


def remove_without_grace(store: Store, pod: JsonObject) -> None:
    """What a kubelet or the pod collector does last: delete with a grace of 0. A pod that is gone is fine."""
    metadata = pod["metadata"]
    options = DeleteOptions(grace_sec=0, uid=metadata["uid"])
    with contextlib.suppress(ApiFailure):
        delete(store, "pods", metadata["namespace"], metadata["name"], options)


def _check_preconditions(obj: JsonObject, options: DeleteOptions) -> None:
    metadata = obj["metadata"]
    for wanted, key in ((options.uid, "uid"), (options.resource_version, "resourceVersion")):
        if wanted and wanted != metadata[key]:
            raise ApiFailure(
                409,
                "Conflict",
                f"Precondition failed: {key} in precondition: {wanted}, in object meta: {metadata[key]}",
            )
