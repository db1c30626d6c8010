"""What a cluster has from the start: namespaces, nodes, system priorities, and a kubeconfig for clients."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from tests.kubernetes.double.defaults import set_defaults
from tests.kubernetes.double.nodes import Node
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["seed", "write_kubeconfig"]

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_NAME = "double"


def seed(store: Store, nodes: Iterable[Node], namespace: str) -> None:
    """Make the objects that are there before any client comes."""
    for name in dict.fromkeys(("default", "kube-system", namespace)):
        made: JsonObject = {"metadata": {"name": name}}
        set_defaults("namespaces", made)
        store.create("namespaces", "", made)
        store.create("serviceaccounts", name, {"metadata": {"name": "default"}})
    for node in nodes:
        store.create("nodes", "", node.manifest())
    for name, value in _SYSTEM_PRIORITIES.items():
        store.create("priorityclasses", "", {"metadata": {"name": name}, "value": value})


def write_kubeconfig(path: Path, url: str, authority: Path, token: str, namespace: str) -> None:
    """Write a file that only this user can read: its token lets one run commands."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": _NAME, "user": {"token": token}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": namespace}}],
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump(config, file)
