"""What the API server says of itself: version, groups, resources. Enough for kubectl."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.double.resources import BY_PLURAL, GROUPS, ResourceKind

__all__ = ["discover"]

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def discover(path: str) -> Any | None:
    """Return the answer to a path of discovery, or None when it is none."""
    path = path.rstrip("/")
    if path == "/version":
        return {
            "major": "1",
            "minor": "32",
            "gitVersion": "v1.32.0-double",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(version) for version in GROUPS]}
    for version in ("v1", *GROUPS):
        if path == ("/api/v1" if version == "v1" else f"/apis/{version}"):
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": _resources(version),
            }
        if path == f"/apis/{version.partition('/')[0]}":
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(version)}
    return None


def _group(version: str) -> dict[str, Any]:
    group, _, plain = version.partition("/")
    named = {"groupVersion": version, "version": plain}
    return {"name": group, "versions": [named], "preferredVersion": named}


def _resources(version: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for kind in BY_PLURAL.values():
        if kind.api_version != version:
            continue
        found.append(_resource(kind))
        if kind.status:
            found.append(
                {**_resource(kind), "name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]}
            )
        if kind.plural == "pods":
            found.append({**_resource(kind), "name": "pods/log", "verbs": ["get"]})
            eviction = {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]}
            found.append({**_resource(kind), "name": "pods/eviction", **eviction})
    return found


def _resource(kind: ResourceKind) -> dict[str, Any]:
    return {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
        "shortNames": kind.short_names,
    }
