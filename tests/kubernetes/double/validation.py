"""Checks of a manifest as it arrives: the published schema, strictly, then the rules that schemas cannot say.

Rules that need other objects (does the PriorityClass exist?) are in `admission`.
"""

from __future__ import annotations

from typing import Any

import kubernetes_validate

from tests.kubernetes.double.errors import invalid
from tests.kubernetes.double.resources import JsonObject, ResourceKind
from tests.kubernetes.double.validation_jobs import job_problems
from tests.kubernetes.double.validation_meta import metadata_problems
from tests.kubernetes.double.validation_pods import pod_spec_problems

__all__ = ["SCHEMA_VERSION", "validate"]

SCHEMA_VERSION = "1.32"


def validate(kind: ResourceKind, manifest: JsonObject) -> None:
    """Check a manifest.

    Raises:
        ApiFailure: 422 with every problem found. A real server that is not asked to be strict only warns of
            an unknown field and drops it; here it is always an error.
    """
    metadata: dict[str, Any] = manifest.get("metadata") or {}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    problem = _schema_problem({"apiVersion": kind.api_version, "kind": kind.kind, **manifest}, kind)
    if problem:
        raise invalid(kind.qualified_kind, name, [problem])
    problems = metadata_problems(kind, metadata)
    if kind.plural == "pods":
        problems += pod_spec_problems(manifest.get("spec") or {}, "spec")
    if kind.plural == "jobs":
        problems += job_problems(manifest)
    if problems:
        raise invalid(kind.qualified_kind, name, problems)


def _schema_problem(manifest: JsonObject, kind: ResourceKind) -> str | None:
    if (manifest["apiVersion"], manifest["kind"]) != (kind.api_version, kind.kind):
        return f"{manifest['apiVersion']} {manifest['kind']} is not what this path takes"
    try:
        kubernetes_validate.validate(manifest, SCHEMA_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
        return f"{where.lstrip('.') or 'manifest'}: {error.message}"
    return None
