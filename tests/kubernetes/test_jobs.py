"""Jobs on a cluster, through the real launcher and executor: pods as asked, and none left at the end.

The jobs run side by side from the start, since most of their time is waiting; each test looks at its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from batch_pipelines.api.job import JobStatus
from batch_pipelines.jobs.folder import mint_job_id
from batch_pipelines.run_config import ASSET, INFERENCE_OP, PARTITION_TAG
from tests.kubernetes.cluster import Cluster, ImagePullFailure, Unschedulable
from tests.kubernetes.deployment import KubernetesDeployment, Services, kubernetes_deployment
from tests.kubernetes.plain_jobs import needs
from tests.kubernetes.scenarios import (
    ITEMS,
    SLOW_ENGINE,
    assert_complete,
    catch,
    completed,
    failed,
    jobs_of,
    notes_of,
    nothing_left,
    pods_of_step,
    replicas,
)
from tests.support.deployment import chats
from tests.support.processes import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]

LONG_SEC = 600.0
PATIENCE_SEC = 40
GPU = "nvidia-hopper-h100"
SMALL: dict[str, Any] = {"gpus": 0, "cpus": "500m", "memory": "2Gi", "storage": "1Gi"}
_NEEDED = {
    "waits": "unschedulable",
    "nowhere": "unschedulable",
    "noimage": "image-pull",
    "oom": "oom",
    "nodes": "indexed-jobs",
}


@pytest.fixture(scope="module")
def site(
    cluster: Cluster, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesDeployment]:
    environment = {
        **SLOW_ENGINE,
        "BATCH_PIPELINES_POD_START_TIMEOUT_SEC": str(PATIENCE_SEC),
        "BATCH_PIPELINES_PRIORITY_CLASSES": '{"urgent": "batch-high"}',
    }
    folder = tmp_path_factory.mktemp("cluster")
    with (
        priority_class(cluster, "batch-high"),
        kubernetes_deployment(cluster, folder, services, environment) as site,
    ):
        yield site
        cluster.clear_faults()


@contextmanager
def priority_class(cluster: Cluster, name: str) -> Iterator[None]:
    with kubernetes_config.new_client_from_config(str(cluster.kubeconfig)) as connection:
        api = kubernetes_client.SchedulingV1Api(connection)
        metadata = kubernetes_client.V1ObjectMeta(name=name)
        api.create_priority_class(kubernetes_client.V1PriorityClass(metadata=metadata, value=1000))
        yield
        api.delete_priority_class(name)


@pytest.fixture(scope="module")
def jobs(site: KubernetesDeployment) -> dict[str, str]:
    """Ids of the jobs, by name; all of them are under way."""
    wanted: dict[str, dict[str, Any]] = {
        "one": {
            "data_parallelism": 3,
            "gpus": 2,
            "gpu_type": GPU,
            "cpus": "3500m",
            "memory": "24Gi",
            "storage": "60Gi",
            "labels": {"team": "search", "owner": "ada"},
            "priority": "urgent",
        },
        "two": SMALL | {"memory": "1Gi", "labels": {"team": "ads"}},
        "bad": {"gpus": 64, "gpu_type": GPU},
        "waits": SMALL | {"data_parallelism": 3},
        "nowhere": SMALL | {"data_parallelism": 2},
        "noimage": SMALL | {"data_parallelism": 2},
        "nodes": {"nodes_per_worker": 2, "gpus": 1, "gpu_type": GPU, "data_parallelism": 2},
    }
    jobs = {}
    for name, fields in wanted.items():
        if _NEEDED.get(name) in (None, *site.cluster.can):
            jobs[name] = site.submit(name, chats(ITEMS, name), **fields)
    for name, fault in (
        ("waits", Unschedulable(_replicas_of(jobs.get("waits")), times=1)),
        ("nowhere", Unschedulable(_replicas_of(jobs.get("nowhere")))),
        ("noimage", ImagePullFailure(_replicas_of(jobs.get("noimage")))),
    ):
        if name in jobs:
            site.cluster.add_fault(fault)
    jobs["hand"] = _launch_by_hand(site)
    return jobs


def _replicas_of(job_id: str | None) -> str:
    return f"batch-pipelines/job-id={job_id},batch-pipelines/step={INFERENCE_OP}"


def _launch_by_hand(site: KubernetesDeployment) -> str:
    job_id = mint_job_id()
    request = {
        "content": chats(3, "hand"),
        "output_data_path": site.output_uri("hand"),
        "gpus": 1,
        "gpu_type": GPU,
        "model_config": {"model": "fake"},
    }
    site.client.add_partition(job_id)
    site.client.launch({"ops": {ASSET: {"config": request}}}, {PARTITION_TAG: job_id})
    return job_id


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return container


def job_named(site: KubernetesDeployment, jobs: dict[str, str], name: str) -> str:
    needs(site.cluster, _NEEDED[name])
    return jobs[name]


def _cancel_and_submit_again(site: KubernetesDeployment) -> None:
    items = chats(ITEMS * 3, "cancel")
    job_id = site.submit("cancel", items, data_parallelism=2, **SMALL)
    catch(site, job_id, INFERENCE_OP, commits=2)
    site.cancel(job_id)
    nothing_left(site, job_id)
    assert site.wait_for_end(job_id).job.status is JobStatus.CANCELLED
    assert site.committed(job_id)
    assert not site.is_published("cancel")
    again = site.submit("cancel", items, data_parallelism=2, **SMALL)
    assert job_id in (completed(site, again).job.metadata or {})["warnings"]
    assert_complete(site, "cancel", ITEMS * 3)


def _let_it_be_late(site: KubernetesDeployment) -> None:
    job_id = site.submit("late", chats(9000, "late"), data_parallelism=2, max_runtime_sec=200, **SMALL)
    assert "max_runtime_sec" in failed(site, job_id)
    nothing_left(site, job_id)
    assert site.committed(job_id)
    assert not site.is_published("late")


def _kill_for_memory(site: KubernetesDeployment) -> None:
    job_id = site.submit("oom", chats(ITEMS * 20, "oom"), **SMALL)
    killed: set[str] = set()

    def thrice() -> bool:
        for pod in pods_of_step(site, job_id, INFERENCE_OP):
            name = pod["metadata"]["name"]
            if name not in killed and pod["status"].get("phase") == "Running":
                site.cluster.oom_kill(name)
                killed.add(name)
        return len(killed) >= 3

    wait_until(thrice, within_sec=400, every_sec=0.5)
    reason = failed(site, job_id)
    assert "OOMKilled" in reason
    assert "2Gi" in reason
    assert {note.reason for note in notes_of(site, job_id)} == {"OOMKilled"}
    nothing_left(site, job_id)


_SCENES = {"late": _let_it_be_late, "cancel": _cancel_and_submit_again, "oom": _kill_for_memory}


@pytest.fixture(scope="module")
def scenes(site: KubernetesDeployment) -> Iterator[dict[str, Future[None]]]:
    """Jobs that something is done to meanwhile, beside the others; they are the first in the queue."""
    with ThreadPoolExecutor(len(_SCENES)) as pool:
        yield {
            name: pool.submit(scene, site)
            for name, scene in _SCENES.items()
            if _NEEDED.get(name) in (None, *site.cluster.can)
        }


@pytest.mark.usefixtures("scenes")
def test_an_invalid_request_says_why_and_takes_no_gpu(
    site: KubernetesDeployment, jobs: dict[str, str]
) -> None:
    assert "/gpus" in failed(site, jobs["bad"])
    assert replicas(site, jobs["bad"]) == []
    nothing_left(site, jobs["bad"])


def test_two_jobs_get_the_pods_that_each_asks_for(site: KubernetesDeployment, jobs: dict[str, str]) -> None:
    for name in ("one", "two"):
        completed(site, jobs[name], within_sec=LONG_SEC)
        assert_complete(site, name)
        nothing_left(site, jobs[name])
    first, second = replicas(site, jobs["one"]), replicas(site, jobs["two"])
    assert (len(first), len(second)) == (3, 1)
    limits = container_of(first[0])["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "2"
    assert (limits["cpu"], limits["memory"], limits["ephemeral-storage"]) == ("3500m", "24Gi", "60Gi")
    assert "nvidia.com/gpu" not in container_of(second[0])["resources"]["limits"]
    assert first[0]["spec"]["template"]["spec"]["priorityClassName"] == "batch-high"
    for place in (first[0]["metadata"], first[0]["spec"]["template"]["metadata"]):
        assert place["labels"]["team"] == "search"
        assert place["labels"]["label.batch-pipelines/owner"] == "ada"
        assert place["labels"]["batch-pipelines/job-id"] == jobs["one"]
    for op in ("validate_request", "shard_inputs", "merge_outputs"):
        (small,) = jobs_of(site, jobs["one"], op)
        assert "nvidia.com/gpu" not in container_of(small)["resources"]["limits"]
    assert all(job["metadata"]["ownerReferences"][0]["kind"] == "Pod" for job in first)


def test_a_launch_by_hand_gets_the_same_pods(site: KubernetesDeployment, jobs: dict[str, str]) -> None:
    completed(site, jobs["hand"], within_sec=LONG_SEC)
    (replica,) = replicas(site, jobs["hand"])
    assert container_of(replica)["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_replica_of_two_nodes_is_one_job_of_two_pods(
    site: KubernetesDeployment, jobs: dict[str, str]
) -> None:
    job_id = job_named(site, jobs, "nodes")
    completed(site, job_id, within_sec=LONG_SEC)
    assert_complete(site, "nodes")
    both = replicas(site, job_id)
    assert [job["spec"]["completionMode"] for job in both] == ["Indexed", "Indexed"]
    assert len(pods_of_step(site, job_id, INFERENCE_OP)) == 4
    assert {pod["status"]["phase"] for pod in pods_of_step(site, job_id, INFERENCE_OP)} == {"Succeeded"}


def test_a_replica_that_waits_for_ever_does_not_hold_the_others_back(
    site: KubernetesDeployment, jobs: dict[str, str]
) -> None:
    job_id = job_named(site, jobs, "waits")
    completed(site, job_id, within_sec=LONG_SEC)
    assert_complete(site, "waits")
    nothing_left(site, job_id)


@pytest.mark.parametrize(
    ("name", "expected"), [("nowhere", "Unschedulable"), ("noimage", "ImagePullBackOff")]
)
def test_replicas_that_cannot_start_fail_the_job_with_the_reason(
    site: KubernetesDeployment, jobs: dict[str, str], name: str, expected: str
) -> None:
    job_id = job_named(site, jobs, name)
    reason = failed(site, job_id, within_sec=LONG_SEC)
    assert expected in reason
    assert "shards are not committed" in reason
    nothing_left(site, job_id)


def test_a_cancelled_job_leaves_no_pod_and_its_work_is_taken_up(scenes: dict[str, Future[None]]) -> None:
    scenes["cancel"].result()


def test_at_its_time_limit_a_job_fails_says_so_and_leaves_no_pod(scenes: dict[str, Future[None]]) -> None:
    scenes["late"].result()


def test_a_replica_that_always_runs_out_of_memory_fails_the_job_with_the_reason(
    site: KubernetesDeployment, scenes: dict[str, Future[None]]
) -> None:
    needs(site.cluster, _NEEDED["oom"])
    scenes["oom"].result()
