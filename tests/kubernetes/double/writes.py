"""Creating and changing objects on behalf of clients: what may be written, and what must stay."""

from __future__ import annotations

import copy
from typing import Any

from tests.kubernetes.double.admission import admit_pod, require_namespace
from tests.kubernetes.double.defaults import set_defaults, without_nulls
from tests.kubernetes.double.errors import bad_request, conflict, invalid
from tests.kubernetes.double.names import generated_name
from tests.kubernetes.double.record import Record
from tests.kubernetes.double.resources import JsonObject, ResourceKind
from tests.kubernetes.double.store import Store
from tests.kubernetes.double.validation import validate

__all__ = ["Writer"]

_OWNED_BY_SERVER = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace",
    "name", "resourceVersion",
)  # fmt: skip
_POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")
_POD_MAY_CHANGE_WHILE_GATED = ("nodeSelector", "affinity")
_JOB_MUST_STAY = ("completionMode", "selector", "template", "manualSelector", "podReplacementPolicy")
_TEMPLATE_MAY_CHANGE = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
_FIXED = "field is immutable"


class Writer:
    """Takes manifests from clients."""

    def __init__(self, store: Store, record: Record) -> None:
        self._store = store
        self._record = record

    def create(
        self, kind: ResourceKind, namespace: str, manifest: Any, *, dry_run: bool = False
    ) -> JsonObject:
        """Keep a new object.

        Raises:
            ApiFailure: The manifest is refused.
        """
        manifest = self._record.received("create", kind, namespace, manifest)
        with self._record.noting_refusal("create", kind, manifest), self._store.lock:
            validate(kind, manifest)
            obj: JsonObject = without_nulls(manifest)
            given = obj["metadata"].get("namespace")
            if kind.namespaced and given not in (None, namespace):
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request: "
                    f"{given}"
                )
            if kind.namespaced:
                require_namespace(self._store, namespace)
            if not obj["metadata"].get("name"):
                obj["metadata"]["name"] = generated_name(obj["metadata"]["generateName"])
            set_defaults(kind.plural, obj)
            if kind.plural == "pods":
                admit_pod(self._store, namespace, obj)
            if dry_run:
                return obj
            return self._store.create(kind.plural, namespace, obj)

    def replace(
        self, kind: ResourceKind, namespace: str, name: str, manifest: Any, part: str | None
    ) -> JsonObject:
        """Put a whole object in an old one's place; `part` is a subresource, such as `status`.

        Raises:
            ApiFailure: The manifest is refused, or it is of an old version.
        """
        manifest = self._record.received("update", kind, namespace, manifest)
        with self._record.noting_refusal("update", kind, manifest):
            validate(kind, manifest)
            return self._write(kind, namespace, name, without_nulls(manifest), part)

    def change(
        self, kind: ResourceKind, namespace: str, name: str, new: JsonObject, part: str | None
    ) -> JsonObject:
        """Keep an object that came out of a patch.

        Raises:
            ApiFailure: It is refused.
        """
        with self._record.noting_refusal("patch", kind, new):
            validate(kind, new)
            return self._write(kind, namespace, name, without_nulls(new), part)

    def _write(
        self, kind: ResourceKind, namespace: str, name: str, new: JsonObject, part: str | None
    ) -> JsonObject:
        with self._store.edit(kind.plural, namespace, name) as edited:
            version = new["metadata"].get("resourceVersion")
            if version and version != edited["metadata"]["resourceVersion"]:
                raise conflict(kind.qualified, name)
            if part == "status":
                edited["status"] = new.get("status") or {}
                return edited
            before = copy.deepcopy(edited)
            kept = {
                field: before["metadata"][field] for field in _OWNED_BY_SERVER if field in before["metadata"]
            }
            edited.update(new)
            for gone in [field for field in edited if field not in new and field != "status"]:
                del edited[gone]
            edited["metadata"] = {
                **{field: value for field, value in new["metadata"].items() if field not in _OWNED_BY_SERVER},
                **kept,
            }
            if kind.status and "status" in before:
                edited["status"] = before["status"]
            _check_immutable(kind, before, edited)
            return edited


def _check_immutable(kind: ResourceKind, before: JsonObject, after: JsonObject) -> None:
    problems: list[str] = []
    if kind.plural == "pods" and _fixed_part(before) != _fixed_part(after, gated_before=before):
        problems.append(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations)"
        )
    if kind.plural == "jobs":
        for field in _JOB_MUST_STAY:
            old, new = before["spec"].get(field), after["spec"].get(field)
            if (
                field == "template"
                and before["spec"].get("suspend")
                and not before["status"].get("startTime")
            ):
                old, new = _fixed_template(old), _fixed_template(new)
            if old != new:
                problems.append(f"spec.{field}: Invalid value: {_FIXED}")
        if before["spec"].get("completions") != after["spec"].get("completions"):
            problems.append(f"spec.completions: Invalid value: {_FIXED}")
    if problems:
        raise invalid(kind.qualified_kind, before["metadata"]["name"], problems)


def _fixed_part(pod: JsonObject, gated_before: JsonObject | None = None) -> JsonObject:
    spec: JsonObject = copy.deepcopy(pod["spec"])
    may_change: tuple[str, ...] = _POD_MAY_CHANGE
    if (gated_before or pod)["spec"].get("schedulingGates"):
        may_change = (*may_change, *_POD_MAY_CHANGE_WHILE_GATED)
    for field in may_change:
        spec.pop(field, None)
    for container in spec["containers"]:
        container.pop("image", None)
    return spec


def _fixed_template(template: JsonObject) -> JsonObject:
    spec = {name: value for name, value in template["spec"].items() if name not in _TEMPLATE_MAY_CHANGE}
    rest = {
        name: value for name, value in template["metadata"].items() if name not in ("labels", "annotations")
    }
    return {"spec": spec, "metadata": rest}
