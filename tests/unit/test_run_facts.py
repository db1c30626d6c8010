"""What Dagster's records say of a job: deadlines, runs at once, abandoned jobs."""

from collections.abc import Iterator

import dagster as dg
import pytest

from batch_pipelines.run_config import PARTITION_TAG
from batch_pipelines.run_facts import deadline_of, earlier_unfinished_run, job_is_abandoned

STATUS = dg.DagsterRunStatus


@dg.job
def some_job() -> None:
    """A job to have runs of."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def a_run(instance: dg.DagsterInstance, status: STATUS, job_id: str = "job", **tags: str) -> dg.DagsterRun:
    more = {f"dagster/{name}": value for name, value in tags.items()}
    return instance.create_run_for_job(some_job, tags={PARTITION_TAG: job_id, **more}, status=status)


@pytest.mark.parametrize("status", [STATUS.NOT_STARTED, STATUS.STARTING, STATUS.STARTED, STATUS.CANCELING])
def test_earlier_run_of_the_same_job_that_has_not_ended_is_found(
    instance: dg.DagsterInstance, status: STATUS
) -> None:
    first = a_run(instance, status)
    second = a_run(instance, STATUS.STARTED)
    assert earlier_unfinished_run(instance, second) == first.run_id
    assert earlier_unfinished_run(instance, first) is None


@pytest.mark.parametrize("status", [STATUS.SUCCESS, STATUS.FAILURE, STATUS.CANCELED])
def test_ended_runs_and_other_jobs_do_not_stand_in_the_way(
    instance: dg.DagsterInstance, status: STATUS
) -> None:
    a_run(instance, status)
    a_run(instance, STATUS.STARTED, "another-job")
    assert earlier_unfinished_run(instance, a_run(instance, STATUS.STARTED)) is None


def test_job_is_abandoned_once_all_its_runs_ended_without_success(instance: dg.DagsterInstance) -> None:
    assert not job_is_abandoned(instance, "job")
    a_run(instance, STATUS.FAILURE)
    a_run(instance, STATUS.CANCELED)
    assert job_is_abandoned(instance, "job")
    a_run(instance, STATUS.STARTED)
    assert not job_is_abandoned(instance, "job")


def test_completed_job_is_not_abandoned(instance: dg.DagsterInstance) -> None:
    a_run(instance, STATUS.FAILURE)
    a_run(instance, STATUS.SUCCESS)
    assert not job_is_abandoned(instance, "job")


def test_failed_job_about_to_be_retried_is_not_abandoned(instance: dg.DagsterInstance) -> None:
    a_run(instance, STATUS.FAILURE, will_retry="true")
    assert not job_is_abandoned(instance, "job")


def started(
    instance: dg.DagsterInstance, at: float, parent: dg.DagsterRun | None = None, **tags: str
) -> dg.DagsterRun:
    run = instance.create_run_for_job(
        some_job,
        tags={PARTITION_TAG: "job", **{f"dagster/{name}": value for name, value in tags.items()}},
        status=STATUS.STARTING,
        parent_run_id=parent.run_id if parent else None,
        root_run_id=(parent.root_run_id or parent.run_id) if parent else None,
    )
    instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", some_job.name), run.run_id, timestamp=at)
    return run


def test_clock_starts_with_the_run_and_goes_on_through_automatic_retries(
    instance: dg.DagsterInstance,
) -> None:
    first = started(instance, 1000.0)
    automatic = started(instance, 5000.0, first, retry_number="1")
    by_hand = started(instance, 9000.0, automatic)
    automatic_again = started(instance, 9500.0, by_hand, retry_number="2")
    assert [deadline_of(instance, run, 60) for run in (first, automatic, by_hand, automatic_again)] == [
        1060.0,
        1060.0,
        9060.0,
        9060.0,
    ]
