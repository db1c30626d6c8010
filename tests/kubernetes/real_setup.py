"""The cluster that KUBECONFIG or, before it, TEST_CLUSTER_KUBECONFIG names, with a namespace for the tests.

They need, or take:
TEST_CLUSTER_IMAGE          image with this project's code, known to the nodes: see deploy/
TEST_CLUSTER_REPLICA_IMAGE  image of pods with an engine; default: the same
TEST_CLUSTER_S3_URL         S3, such as moto's server, at one address for this machine and for pods
TEST_CLUSTER_POSTGRES_URL   postgresql://user:password@host:port/database, likewise; may add databases
TEST_CLUSTER_FAKE_GPUS      so many GPUs that are none for every node, while the tests run; default: 0
TEST_CLUSTER_API_URL        the API server as pods reach it; default: https://kubernetes.default.svc
TEST_CLUSTER_PULL_POLICY    default: IfNotPresent
TEST_CLUSTER_VOLUMES        JSON {"volumes": [...], "volume_mounts": [...]} for every pod, such as a hostPath

With kind, the image comes in by `kind load docker-image`, and both servers listen on the nodes' gateway
(`docker network inspect kind`). kubectl must be there; its user may make namespaces, roles and priority
classes, change the state of nodes for the GPUs, and run commands in pods. The namespace goes at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from kubernetes import client, config

from tests.kubernetes.deployment import DEPLOY, Services
from tests.kubernetes.real_cluster import RealCluster
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until
from tests.support.s3 import S3Server

__all__ = ["real_cluster", "real_services"]

_POD_FILES: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_SHIPPED: Final = ("service-accounts.yaml", "role.yaml")
_GONE_SEC: Final = 120.0
_GPU: Final = "nvidia.com/gpu"
_GPU_LABEL: Final = ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")
_SMALL: Final = {"cpus": "100m", "memory": "1Gi", "storage": "1Gi"}
"""Small steps of jobs of a hundred items, for clusters on one machine."""


@contextmanager
def real_cluster(folder: Path) -> Iterator[RealCluster]:
    """The cluster of the environment, with a namespace of its own for as long as it is used.

    Args:
        folder: For files that pods find at the same path.
    """
    source = os.environ.get("TEST_CLUSTER_KUBECONFIG") or os.environ.get("KUBECONFIG")
    image = _needed("TEST_CLUSTER_IMAGE")
    if not source:
        raise RuntimeError("set KUBECONFIG: see tests/kubernetes/real_setup.py")
    namespace = f"batch-pipelines-{uuid.uuid4().hex[:8]}"
    files = folder / "cluster"
    files.mkdir(parents=True)
    kubeconfig = files / "config"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(json.dumps(_current_context(source, namespace)))
    table = {"small_steps": dict.fromkeys(("validate_request", "shard_inputs", "merge_outputs"), _SMALL)}
    in_pods = {"config": json.dumps(_pod_config(namespace)), "clusters.yaml": yaml.safe_dump(table)}
    (files / "clusters.yaml").write_text(in_pods["clusters.yaml"])
    extra = json.loads(os.environ.get("TEST_CLUSTER_VOLUMES", "{}"))
    launcher = {
        "image_pull_policy": os.environ.get("TEST_CLUSTER_PULL_POLICY", "IfNotPresent"),
        "volumes": [{"name": "cluster", "config_map": {"name": "cluster"}}, *extra.get("volumes", [])],
        "volume_mounts": [
            {"name": "cluster", "mount_path": str(files), "read_only": True},
            *extra.get("volume_mounts", []),
        ],
    }
    with config.new_client_from_config(str(kubeconfig)) as connection:
        core = client.CoreV1Api(connection)
        core.create_namespace({"metadata": {"name": namespace}})
        try:
            core.create_namespaced_config_map(namespace, {"metadata": {"name": "cluster"}, "data": in_pods})
            for name in _SHIPPED:
                _kubectl(kubeconfig, "apply", "--filename", str(DEPLOY / "kubernetes" / "base" / name))
            with _fake_gpus(connection, int(os.environ.get("TEST_CLUSTER_FAKE_GPUS", "0"))):
                yield RealCluster(
                    kubeconfig,
                    namespace,
                    image,
                    os.environ.get("TEST_CLUSTER_REPLICA_IMAGE", image),
                    connection,
                    launcher,
                    {"BATCH_PIPELINES_CLUSTER_TABLE": str(files / "clusters.yaml")},
                    RealCluster.can | _features(connection),
                )
        finally:
            core.delete_namespace(namespace)
            _wait_until_gone(core, namespace)


@contextmanager
def real_services() -> Iterator[Services]:
    """Storage and database of the environment, which runs them."""
    s3, postgres = _needed("TEST_CLUSTER_S3_URL"), _needed("TEST_CLUSTER_POSTGRES_URL")
    yield Services(S3Server(s3), PostgresServer.at(postgres))


def _needed(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"set {name}: see tests/kubernetes/real_setup.py")
    return value


def _kubectl(kubeconfig: str | Path, *arguments: str) -> bytes:
    command = ["kubectl", *arguments]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"kubectl {arguments[0]}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def _current_context(source: str, namespace: str) -> dict[str, Any]:
    """The kubeconfig's current context alone, with all it refers to, and with this namespace."""
    shown = _kubectl(source, "config", "view", "--minify", "--flatten", "--raw", "--output=json")
    chosen: dict[str, Any] = json.loads(shown)
    chosen["contexts"][0]["context"]["namespace"] = namespace
    return chosen


def _pod_config(namespace: str) -> dict[str, Any]:
    """A kubeconfig for pods: who they are is told by their service account's token."""
    server = os.environ.get("TEST_CLUSTER_API_URL", "https://kubernetes.default.svc")
    cluster = {"server": server, "certificate-authority": f"{_POD_FILES}/ca.crt"}
    context = {"cluster": "pod", "user": "pod", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": cluster}],
        "users": [{"name": "pod", "user": {"tokenFile": f"{_POD_FILES}/token"}}],
        "contexts": [{"name": "pod", "context": context}],
    }


def _features(connection: client.ApiClient) -> frozenset[str]:
    """What newer clusters have and older ones have not."""
    found = client.VersionApi(connection).get_code()
    has_indexed_jobs = (int(found.major), int(found.minor.rstrip("+"))) >= (1, 24)
    return frozenset({"indexed-jobs"} if has_indexed_jobs else ())


@contextmanager
def _fake_gpus(connection: client.ApiClient, count: int) -> Iterator[None]:
    """Let every node say that it has GPUs, and take that back."""
    core = client.CoreV1Api(connection)
    names = [node.metadata.name for node in core.list_node().items] if count else []
    pointer = _GPU.replace("/", "~1")
    label, product = _GPU_LABEL
    for name in names:
        amounts = [
            {"op": "add", "path": f"/status/{kind}/{pointer}", "value": str(count)}
            for kind in ("capacity", "allocatable")
        ]
        core.patch_node_status(name, amounts)
        core.patch_node(name, {"metadata": {"labels": {label: product}}})
    try:
        yield
    finally:
        for name in names:
            core.patch_node_status(
                name,
                [
                    {"op": "remove", "path": f"/status/{kind}/{pointer}"}
                    for kind in ("capacity", "allocatable")
                ],
            )
            core.patch_node(name, {"metadata": {"labels": {label: None}}})


def _wait_until_gone(core: client.CoreV1Api, namespace: str) -> None:
    def is_gone() -> bool:
        try:
            core.read_namespace(namespace)
        except client.ApiException as error:
            return bool(error.status == 404)
        return False

    wait_until(is_gone, within_sec=_GONE_SEC, every_sec=0.5)
