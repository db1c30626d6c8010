"""What the scenarios on a cluster share: jobs that take a while, and pods caught at what they do."""

from __future__ import annotations

from typing import Any

from batch_pipelines.api.job import JobStatus
from batch_pipelines.control.jobs import JobView
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.pod_notes import PodNote, read_notes
from batch_pipelines.run_config import INFERENCE_OP
from tests.kubernetes.deployment import KubernetesDeployment
from tests.support.processes import wait_until

__all__ = [
    "ITEMS",
    "SLOW_ENGINE",
    "assert_complete",
    "catch",
    "catch_run_worker",
    "completed",
    "failed",
    "jobs_of",
    "notes_of",
    "nothing_left",
    "pods_of_step",
    "replicas",
]

ITEMS = 100
SLOW_ENGINE = {
    "BATCH_PIPELINES_FAKE_DELAY_SEC": "0.4",
    "BATCH_PIPELINES_FAKE_MAX_IN_FLIGHT": "4",
    "BATCH_PIPELINES_SHARD_MAX_ITEMS": "8",
}
"""The fake engine, slow enough to be caught at work."""

_CATCH_SEC = 400.0


def jobs_of(site: KubernetesDeployment, job_id: str, op: str) -> list[dict[str, Any]]:
    """Kubernetes jobs of an op, in every run of a batch job."""
    return site.cluster.jobs(f"batch-pipelines/job-id={job_id},batch-pipelines/step={op}")


def pods_of_step(site: KubernetesDeployment, job_id: str, op: str) -> list[dict[str, Any]]:
    """Pods of an op, in every run of a batch job."""
    return site.cluster.pods(f"batch-pipelines/job-id={job_id},batch-pipelines/step={op}")


def catch(site: KubernetesDeployment, job_id: str, op: str, *, commits: int = 0) -> str:
    """Wait until a pod of an op runs and so many shards are committed; its name."""
    found: list[str] = []

    def runs() -> bool:
        found[:] = [
            pod["metadata"]["name"]
            for pod in pods_of_step(site, job_id, op)
            if pod["status"].get("phase") == "Running"
        ]
        return bool(found) and (not commits or len(site.committed(job_id)) >= commits)

    wait_until(runs, within_sec=_CATCH_SEC, every_sec=0.1)
    return sorted(found)[0]


def catch_run_worker(site: KubernetesDeployment, job_id: str) -> str:
    """The pod of a job's run."""
    found: list[str] = []

    def runs() -> bool:
        selector = f"{site.run_selector(job_id)},app.kubernetes.io/component=run_worker"
        found[:] = [
            pod["metadata"]["name"]
            for pod in site.cluster.pods(selector)
            if pod["status"].get("phase") == "Running"
        ]
        return bool(found)

    wait_until(runs, within_sec=_CATCH_SEC, every_sec=0.2)
    return found[0]


def completed(site: KubernetesDeployment, job_id: str, *, within_sec: float = 300.0) -> JobView:
    """The job, once it has ended as it should."""
    view = site.wait_for_end(job_id, within_sec=within_sec)
    assert view.job.status is JobStatus.COMPLETED, (view.job.metadata or {}).get("reason")
    return view


def failed(site: KubernetesDeployment, job_id: str, *, within_sec: float = 300.0) -> str:
    """Why the job failed, once it has."""
    view = site.wait_for_end(job_id, within_sec=within_sec)
    assert view.job.status is JobStatus.FAILED
    return (view.job.metadata or {})["reason"]


def assert_complete(site: KubernetesDeployment, name: str, items: int = ITEMS) -> None:
    """Every item has its own answer, in its place."""
    records = site.records(name)
    assert [record["custom_id"] for record in records] == list(range(items))
    for n, record in enumerate(records):
        assert record["choices"][0]["message"]["content"].endswith(f"{name} {n}")


def nothing_left(site: KubernetesDeployment, job_id: str, *, within_sec: float = 60.0) -> None:
    """No pod of the job's runs or steps goes on running or waiting."""
    run_ids = {run.run_id for run in site.client.runs_of(job_id)}

    def live() -> list[str]:
        return [pod for run_id in run_ids for pod in site.cluster.live_pods(f"dagster/run-id={run_id}")]

    wait_until(lambda: not live(), within_sec=within_sec, every_sec=0.5)


def notes_of(site: KubernetesDeployment, job_id: str) -> list[PodNote]:
    """What is known of the pods of a job's newest run."""
    folder = JobFolder(site.settings.job_store, job_id)
    return read_notes(site.store, folder, site.view(job_id).run.run_id)


def replicas(site: KubernetesDeployment, job_id: str) -> list[dict[str, Any]]:
    """Kubernetes jobs of a batch job's replicas."""
    return jobs_of(site, job_id, INFERENCE_OP)
