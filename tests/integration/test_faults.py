"""Processes killed in mid-batch: after the retry the output is complete, and no committed work is redone.

A real Dagster, with its daemon, webserver and a process a step; the engine is the fake one, slow enough to
be caught at work, and its journal tells which process asked for what.
"""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from batch_pipelines.api.job import JobStatus
from tests.support.deployment import Deployment, chats, deployment, once_each, slow_fake_engine
from tests.support.processes import gone, wait_until

ITEMS = 160


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("faults")
    with deployment(folder, slow_fake_engine(folder, 0.4)) as site:
        yield site


def replicas_at_work(site: Deployment, name: str) -> set[int]:
    """Process ids of the steps that asked the engine for items of a job."""
    return {
        entry.pid for entry in site.journal if entry.prompt.startswith(f"{name} ") and not gone(entry.pid)
    }


def catch_at_work(site: Deployment, name: str, job_id: str) -> list[int]:
    """Wait until both replicas are in mid-batch, with something committed and much left."""
    wait_until(lambda: len(replicas_at_work(site, name)) == 2, within_sec=90, every_sec=0.2)
    site.wait_for_commits(job_id, 2)
    return sorted(replicas_at_work(site, name))


def assert_complete(site: Deployment, name: str) -> None:
    records = site.records(name)
    assert [record["custom_id"] for record in records] == list(range(ITEMS))
    assert all(
        record["choices"][0]["message"]["content"].endswith(f"{name} {n}") for n, record in enumerate(records)
    )


def test_killed_replica_loses_nothing_and_its_committed_shards_stay(site: Deployment) -> None:
    job_id = site.submit("step", chats(ITEMS, "step"), data_parallelism=2)
    victim = catch_at_work(site, "step", job_id)[0]
    committed = site.committed_indexes(job_id)
    os.kill(victim, signal.SIGKILL)
    assert site.wait_for_end(job_id).job.status is JobStatus.COMPLETED
    assert_complete(site, "step")
    assert once_each(site.journal, "step", committed)


def test_killed_run_worker_is_replaced_and_its_replicas_end_by_themselves(site: Deployment) -> None:
    job_id = site.submit("worker", chats(ITEMS, "worker"), data_parallelism=2)
    replicas = catch_at_work(site, "worker", job_id)
    worker = psutil.Process(replicas[0]).parent()
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: all(gone(pid) for pid in replicas))
    committed = site.committed_indexes(job_id)
    assert len(committed) < ITEMS
    view = site.wait_for_end(job_id)
    assert view.job.status is JobStatus.COMPLETED
    assert view.run.tags["dagster/retry_number"] == "1"
    assert_complete(site, "worker")
    assert once_each(site.journal, "worker", committed)


def test_cancelled_job_keeps_its_shards_for_the_same_request_and_no_other(site: Deployment) -> None:
    items = chats(ITEMS, "cancel")
    job_id = site.submit("cancel", items, data_parallelism=2)
    replicas = catch_at_work(site, "cancel", job_id)
    site.client.terminate(site.view(job_id).run.run_id)
    assert site.wait_for_end(job_id).job.status is JobStatus.CANCELLED
    wait_until(lambda: all(gone(pid) for pid in replicas))
    assert not site.output("cancel").exists()
    committed = site.committed_indexes(job_id)
    assert committed

    other = site.submit("cancel", items, data_parallelism=2, model_config={"model": "fake", "seed": 1})
    again = site.submit("cancel", items, data_parallelism=2)
    assert site.wait_for_end(other).job.status is JobStatus.COMPLETED
    assert site.wait_for_end(again).job.status is JobStatus.COMPLETED
    assert_complete(site, "cancel")
    asked = [entry.prompt for entry in site.journal if entry.prompt.startswith("cancel ")]
    # Once by the first job and the one that took over its work, once under the other fingerprint.
    assert all(asked.count(f"cancel {index}") == 2 for index in committed)
