"""The kinds of objects the double keeps, and how they are named in paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["BY_KIND", "BY_PLURAL", "GROUPS", "JsonObject", "ResourceKind"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind."""

    plural: str
    kind: str
    api_version: str = "v1"
    namespaced: bool = True
    short_names: list[str] = field(default_factory=list)
    status: bool = False

    @property
    def singular(self) -> str:
        """As kubectl takes it."""
        return self.kind.lower()

    @property
    def group(self) -> str:
        """API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """Name of the resource in messages, such as `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """Kind in messages, such as `Job.batch`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


_ALL = [
    ResourceKind("pods", "Pod", short_names=["po"], status=True),
    ResourceKind("events", "Event", short_names=["ev"]),
    ResourceKind("configmaps", "ConfigMap", short_names=["cm"]),
    ResourceKind("secrets", "Secret"),
    ResourceKind("serviceaccounts", "ServiceAccount", short_names=["sa"]),
    ResourceKind("services", "Service", short_names=["svc"], status=True),
    ResourceKind("persistentvolumeclaims", "PersistentVolumeClaim", short_names=["pvc"], status=True),
    ResourceKind("namespaces", "Namespace", namespaced=False, short_names=["ns"], status=True),
    ResourceKind("nodes", "Node", namespaced=False, short_names=["no"], status=True),
    ResourceKind("jobs", "Job", "batch/v1", status=True),
    ResourceKind(
        "priorityclasses", "PriorityClass", "scheduling.k8s.io/v1", namespaced=False, short_names=["pc"]
    ),
]
BY_PLURAL = {kind.plural: kind for kind in _ALL}
BY_KIND = {(kind.api_version, kind.kind): kind for kind in _ALL}
GROUPS = sorted({kind.api_version for kind in _ALL if kind.group})
