"""What Dagster's records say of a job's runs, for the ops that need to know."""

import dagster as dg

from batch_pipelines.run_config import PARTITION_TAG

__all__ = ["deadline_of", "job_is_abandoned"]

_AUTOMATIC_RETRY_TAG = "dagster/retry_number"
_ROOT_RUN_TAG = "dagster/root_run_id"
_WILL_RETRY_TAG = "dagster/will_retry"


def deadline_of(instance: dg.DagsterInstance, run: dg.DagsterRun, limit_sec: int) -> float | None:
    """Unix time at which a run's job must end.

    The clock starts when the run does; time in the queue is free. An automatic retry goes on with
    the clock of the run it replaces, one started by a person gets a clock of its own.
    """
    run_id = run.run_id
    if _AUTOMATIC_RETRY_TAG in run.tags:
        run_id = run.tags.get(_ROOT_RUN_TAG, run_id)
    record = instance.get_run_record_by_id(run_id)
    return record.start_time + limit_sec if record is not None and record.start_time is not None else None


def job_is_abandoned(instance: dg.DagsterInstance, job_id: str) -> bool:
    """Whether a job has ended without completing, and no retry of it is on its way."""
    runs = instance.get_runs(filters=dg.RunsFilter(tags={PARTITION_TAG: job_id}))
    if not runs:
        return False
    return all(
        run.is_finished
        and run.status is not dg.DagsterRunStatus.SUCCESS
        and run.tags.get(_WILL_RETRY_TAG) != "true"
        for run in runs
    )
