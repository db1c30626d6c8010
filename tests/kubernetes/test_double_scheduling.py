"""The double's own: which node a pod gets, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.double.node_pools import cpu_node, gpu_node
from tests.kubernetes.plain_jobs import Clients, clients_of
from tests.support.processes import wait_until

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def double() -> Iterator[DoubleCluster]:
    with DoubleCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kube(double: DoubleCluster) -> Iterator[Clients]:
    with clients_of(double) as clients:
        yield clients


def gpus(count: int, resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    return {"resources": {"limits": {resource: count}}}


def node_of(kube: Clients, job: str) -> str:
    wait_until(lambda: bool(kube.pod(job)["spec"].get("nodeName")))
    return str(kube.pod(job)["spec"]["nodeName"])


def test_a_pod_without_gpus_gets_the_node_without(kube: Clients) -> None:
    assert node_of(kube, kube.start("true")) == "cpu-0"


def test_gpus_need_a_toleration(kube: Clients) -> None:
    name = kube.start("true", container=gpus(1))
    assert kube.wait_for_event(kube.pod_name(name), "FailedScheduling") == (
        "0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint "
        "{nvidia.com/gpu: present}. preemption: 0/5 nodes are available: 5 Preemption is not helpful for "
        "scheduling."
    )


def test_every_reason_is_counted(kube: Clients) -> None:
    name = kube.start(
        "true",
        container=gpus(1),
        tolerations=[GPU_TOLERATION],
        nodeSelector={"nvidia.com/mig.strategy": "mixed"},
    )
    message = kube.wait_for_event(kube.pod_name(name), "FailedScheduling")
    assert message.startswith(
        "0/5 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "4 node(s) didn't match Pod's node affinity/selector. "
    )


def test_parts_of_gpus_are_on_their_own_node(kube: Clients) -> None:
    name = kube.start("true", container=gpus(1, "nvidia.com/mig-1g.20gb"), tolerations=[GPU_TOLERATION])
    assert node_of(kube, name) == "mig-0"


@pytest.mark.parametrize(
    ("operator", "values", "node"),
    [
        ("In", ["mig-0", "nobody"], "mig-0"),
        ("NotIn", ["cpu-0", "gpu-0", "gpu-1", "mig-0"], "gpu-2"),
    ],
)
def test_required_affinity_decides(kube: Clients, operator: str, values: list[str], node: str) -> None:
    expression = {"key": "kubernetes.io/hostname", "operator": operator, "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert node_of(kube, kube.start("true", affinity=affinity, tolerations=[GPU_TOLERATION])) == node


def test_a_claim_that_is_not_there_keeps_the_pod_from_every_node(kube: Clients) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}
    name = kube.start("true", volumes=[volume])
    message = kube.wait_for_event(kube.pod_name(name), "FailedScheduling")
    assert 'persistentvolumeclaim "weights" not found' in message
    claim = {
        "metadata": {"name": "weights"},
        "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kube.core.create_namespaced_persistent_volume_claim(kube.namespace, claim)
    assert kube.wait_for_end(name)[0] == "Complete"


def test_a_pod_that_waits_gets_the_room_that_another_leaves() -> None:
    nodes = (cpu_node(cpu="2"), gpu_node("gpu-0", gpus=8))
    with DoubleCluster(nodes=nodes) as double, clients_of(double) as kube:
        asked: dict[str, Any] = {
            "container": gpus(5),
            "tolerations": [GPU_TOLERATION],
            "terminationGracePeriodSeconds": 0,
        }
        first = kube.start("echo up; sleep 60", **asked)
        kube.wait_until_up(first)
        second = kube.start("true", **asked)
        kube.wait_for_event(kube.pod_name(second), "FailedScheduling")
        kube.delete_job(first)
        assert kube.wait_for_end(second)[0] == "Complete"
        assert kube.pod(second)["spec"]["nodeName"] == "gpu-0"


def test_limits_count_as_requests_and_all_pods_of_a_node_add_up() -> None:
    with DoubleCluster(nodes=(cpu_node(cpu="2", memory="1Gi"),)) as double, clients_of(double) as kube:
        limits = {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}
        kube.wait_until_up(kube.start("echo up; sleep 60", container=limits))
        name = kube.start("true", container=limits)
        message = kube.wait_for_event(kube.pod_name(name), "FailedScheduling")
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. ")
