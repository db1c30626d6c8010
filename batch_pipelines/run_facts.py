"""What Dagster's records say of a job's runs, for the ops that need to know."""

import dagster as dg

from batch_pipelines.run_config import PARTITION_TAG

__all__ = ["deadline_of", "earlier_unfinished_run", "job_is_abandoned", "run_is_over"]

_AUTOMATIC_RETRY_TAG = "dagster/retry_number"


def deadline_of(instance: dg.DagsterInstance, run: dg.DagsterRun, limit_sec: int) -> float | None:
    """Unix time at which a run's job must end.

    The clock starts when the run does; time in the queue is free. An automatic retry goes on with
    the clock of the run it replaces, one started by a person gets a clock of its own.
    """
    first = run
    while _AUTOMATIC_RETRY_TAG in first.tags and first.parent_run_id is not None:
        parent = instance.get_run_by_id(first.parent_run_id)
        if parent is None:
            break  # deleted since
        first = parent
    record = instance.get_run_record_by_id(first.run_id)
    return record.start_time + limit_sec if record is not None and record.start_time is not None else None


def earlier_unfinished_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """Id of a run of the same job that was launched before this one and has not ended, if there is one.

    Two runs at once would work on one folder; nothing can be lost, but each would publish what the
    newer request says.
    """
    filters = dg.RunsFilter(tags={PARTITION_TAG: run.tags[PARTITION_TAG]})
    records = instance.get_run_records(filters=filters)
    mine = next(record.storage_id for record in records if record.dagster_run.run_id == run.run_id)
    return next(
        (
            record.dagster_run.run_id
            for record in records
            if record.storage_id < mine and not record.dagster_run.is_finished
        ),
        None,
    )


def run_is_over(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether a run has ended, or was deleted; its run worker may be gone without its steps knowing."""
    run = instance.get_run_by_id(run_id)
    return run is None or run.is_finished


def job_is_abandoned(instance: dg.DagsterInstance, job_id: str) -> bool:
    """Whether a job has ended without completing, and no retry of it is on its way."""
    runs = instance.get_runs(filters=dg.RunsFilter(tags={PARTITION_TAG: job_id}))
    if not runs:
        return False
    return all(
        run.is_finished
        and run.status is not dg.DagsterRunStatus.SUCCESS
        and not run.is_complete_and_waiting_to_retry
        for run in runs
    )
