"""Rules for names, labels and annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.double.resources import ResourceKind

__all__ = [
    "annotation_problems",
    "is_dns_label",
    "is_dns_subdomain",
    "label_problems",
    "metadata_problems",
]

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_ANNOTATIONS_BYTES = 256 * 1024
_DNS_LABEL_KINDS = ("Namespace", "Service")


def is_dns_label(value: str) -> bool:
    """Return whether it is an RFC 1123 label."""
    return len(value) <= 63 and bool(_DNS_LABEL.fullmatch(value))


def is_dns_subdomain(value: str) -> bool:
    """Return whether it is an RFC 1123 subdomain."""
    return len(value) <= 253 and bool(_DNS_SUBDOMAIN.fullmatch(value))


def metadata_problems(kind: ResourceKind, metadata: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an object's metadata."""
    problems = []
    name, base = metadata.get("name"), metadata.get("generateName")
    if not name and not base:
        problems.append("metadata.name: Required value: name or generateName is required")
    elif name:
        good = is_dns_label(name) if kind.kind in _DNS_LABEL_KINDS else is_dns_subdomain(name)
        if not good:
            problems.append(
                f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of '
                "lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                "character"
            )
    problems += label_problems(metadata.get("labels"), "metadata.labels")
    problems += annotation_problems(metadata.get("annotations"), "metadata.annotations")
    return problems


def label_problems(labels: Mapping[str, str] | None, where: str) -> list[str]:
    """Return what is wrong with labels, or with a node selector."""
    problems = []
    for key, value in (labels or {}).items():
        problems += _key_problems(key, where)
        if value and (len(value) > 63 or not _NAME_PART.fullmatch(value)):
            problems.append(
                f'{where}: Invalid value: "{value}": a valid label must be an empty string or consist of '
                "alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric "
                "character, and must be no more than 63 characters"
            )
    return problems


def annotation_problems(annotations: Mapping[str, str] | None, where: str) -> list[str]:
    """Return what is wrong with annotations."""
    annotations = annotations or {}
    problems = [problem for key in annotations for problem in _key_problems(key.lower(), where)]
    if (
        sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        > _ANNOTATIONS_BYTES
    ):
        problems.append(f"{where}: Too long: may not be more than {_ANNOTATIONS_BYTES} bytes")
    return problems


def _key_problems(key: str, where: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash and not is_dns_subdomain(prefix):
        problems.append(
            f'{where}: Invalid value: "{key}": prefix part must be a lowercase RFC 1123 subdomain'
        )
    if len(name) > 63 or not _NAME_PART.fullmatch(name):
        problems.append(
            f"{where}: Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', "
            "'_' or '.', and must start and end with an alphanumeric character, and be no more than 63 "
            "characters"
        )
    return problems
