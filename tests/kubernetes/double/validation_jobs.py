"""Rules for a Job, beyond its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kubernetes.double.validation_meta import annotation_problems, is_dns_label, label_problems
from tests.kubernetes.double.validation_pods import pod_spec_problems

__all__ = ["job_problems"]

_NOT_NEGATIVE = (
    "parallelism",
    "completions",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
)
_NOT_HERE = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy")


def job_problems(manifest: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a Job."""
    spec = manifest.get("spec") or {}
    name = (manifest.get("metadata") or {}).get("name") or ""
    problems = [
        f"spec.{field}: Invalid value: {spec[field]}: must be greater than or equal to 0"
        for field in _NOT_NEGATIVE
        if spec.get(field) is not None and spec[field] < 0
    ]
    problems += [
        f"spec.{field}: Forbidden: the double does not do this; see the limits in tests/kubernetes/double"
        for field in _NOT_HERE
        if spec.get(field) is not None
    ]
    problems += _mode_problems(spec, name)
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    # The controller puts the Job's name on its pods as a label, so it has to be one.
    labels = {**(metadata.get("labels") or {}), "job-name": name}
    problems += label_problems(labels, "spec.template.labels")
    problems += annotation_problems(metadata.get("annotations"), "spec.template.annotations")
    pod_spec = template.get("spec") or {}
    problems += pod_spec_problems(pod_spec, "spec.template.spec")
    policy = pod_spec.get("restartPolicy")
    if not policy:
        problems.append(
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
        )
    elif policy not in ("OnFailure", "Never"):
        problems.append(
            f'spec.template.spec.restartPolicy: Unsupported value: "{policy}": '
            'supported values: "OnFailure", "Never"'
        )
    return problems


def _mode_problems(spec: Mapping[str, Any], name: str) -> list[str]:
    mode = spec.get("completionMode")
    if mode not in (None, "NonIndexed", "Indexed"):
        return [
            f'spec.completionMode: Unsupported value: "{mode}": supported values: "Indexed", "NonIndexed"'
        ]
    if mode != "Indexed":
        return []
    if spec.get("completions") is None:
        return ["spec.completions: Required value: when completion mode is Indexed"]
    problems = []
    last = f"{name}-{max(spec['completions'] - 1, 0)}"
    if name and not is_dns_label(last):
        problems.append(
            f'metadata.name: Invalid value: "{name}": will not be able to create pod with invalid DNS label: '
            f"{last}"
        )
    if spec.get("parallelism", 1) > 100_000:
        problems.append(
            "spec.parallelism: Invalid value: must be 100000 or less when completion mode is Indexed"
        )
    return problems
