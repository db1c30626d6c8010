"""What Dagster's runs, and what a job left in the job store, say of the job. Pure functions.

Reading either is not done here: see `batch_pipelines.control.jobs`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from batch_pipelines.api.job import BatchCompletionsJob, JobStatus
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.control.runs import Run
from batch_pipelines.jobs.progress import JobProgress
from batch_pipelines.run_config import ASSET, LABEL_TAG_PREFIX
from batch_pipelines.stages.merge import Summary

__all__ = ["FINAL", "STATUS_OF_RUN", "job_of", "stage_of", "status_of", "will_be_retried"]

STATUS_OF_RUN: Mapping[str, JobStatus] = {
    "QUEUED": JobStatus.QUEUED,
    "NOT_STARTED": JobStatus.QUEUED,
    "STARTING": JobStatus.QUEUED,
    "STARTED": JobStatus.RUNNING,
    "SUSPENDED": JobStatus.RUNNING,
    "CANCELING": JobStatus.RUNNING,  # until its processes have stopped
    "SUCCESS": JobStatus.COMPLETED,
    "FAILURE": JobStatus.FAILED,
    "CANCELED": JobStatus.CANCELLED,
    "MANAGED": JobStatus.UNKNOWN,
}
"""Status of a job by the name of its newest run's `DagsterRunStatus`; `status_of` knows the exceptions."""

FINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.UNKNOWN})
"""Statuses that do not change any more by themselves."""

_WILL_RETRY_TAG = "dagster/will_retry"
_MAX_RETRIES_TAG = "dagster/max_retries"
_UNDECIDED = timedelta(seconds=60)
_RETRY_RUN_TAG = "dagster/auto_retry_run_id"
_RETRY_NUMBER_TAG = "dagster/retry_number"
_NOT_PUBLISHED = (
    "the run succeeded but the job store has no summary of it: only some of its steps were run, or this "
    "command looks at another job store than the deployment (BATCH_PIPELINES_HOME, BATCH_PIPELINES_STORE)"
)


def will_be_retried(run: Run) -> bool:
    """Whether a failed run is followed by another one by itself, or that is not decided yet.

    Dagster says so in a tag, a moment after the failure; until then a job that may be retried has not failed.
    """
    if run.status != "FAILURE":
        return False
    if _RETRY_RUN_TAG in run.tags:
        return True
    decided = run.tags.get(_WILL_RETRY_TAG)
    if decided is not None or run.ended_at is None or run.tags.get(_MAX_RETRIES_TAG, "0") == "0":
        return decided == "true"
    return datetime.now(UTC) - run.ended_at < _UNDECIDED


def status_of(run: Run, *, published: bool) -> JobStatus:
    """Status of a job.

    Args:
        run: Its newest run, which decides.
        published: Whether its summary is there, the proof of a complete output.
    """
    if will_be_retried(run):
        return JobStatus.QUEUED
    status = STATUS_OF_RUN.get(run.status, JobStatus.UNKNOWN)
    return JobStatus.UNKNOWN if status is JobStatus.COMPLETED and not published else status


def stage_of(run: Run, progress: JobProgress | None) -> str:
    """What a job is doing, in a word or two.

    Args:
        run: Its newest run, with its steps.
        progress: How far it is; None while its input is not sharded.
    """
    if will_be_retried(run):
        return "waiting for a retry"
    if run.status == "CANCELING":
        return "cancelling"
    if run.status != "STARTED":
        return STATUS_OF_RUN.get(run.status, JobStatus.UNKNOWN).value
    ops = {_op_of(key) for key in run.steps}
    if "merge_outputs" in ops:
        return "merging"
    if "run_inference" in ops:
        return "inferring" if progress is not None and _is_answering(progress) else "starting the engine"
    if "shard_inputs" in ops:
        return "sharding"
    return "validating" if "validate_request" in ops else "starting"


def _is_answering(progress: JobProgress) -> bool:
    states = set(progress.workers.values())
    return "inferring" in states or (progress.done > 0 and not states & {"starting", "starting the engine"})


def job_of(
    job_id: str,
    request: CreateBatchCompletionsV2Request,
    runs: Sequence[Run],
    *,
    summary: Summary | None = None,
    progress: JobProgress | None = None,
    reason: str | None = None,
    pods: Sequence[str] = (),
) -> BatchCompletionsJob:
    """The job as clients see it.

    Args:
        job_id: The job.
        request: What was asked.
        runs: Its runs, the newest first; at least one.
        summary: What it did, if it published its output.
        progress: How far it is, if that is known.
        reason: Why it failed, if it did.
        pods: What is known of pods that failed or wait, while it has not ended.
    """
    newest = runs[0]
    status = status_of(newest, published=summary is not None)
    if status is JobStatus.UNKNOWN and newest.status == "SUCCESS":
        reason = _NOT_PUBLISHED
    final = status in FINAL
    published = summary if status is JobStatus.COMPLETED else None
    return BatchCompletionsJob(
        job_id=job_id,
        input_data_path=request.input_data_path,
        output_data_path=request.output_data_path,
        model_config=request.engine_config,
        priority=request.priority,
        status=status,
        created_at=_iso(runs[-1].created_at),
        expires_at=_iso(_clock_start(runs) + timedelta(seconds=request.runtime_seconds)),
        completed_at=_iso(newest.ended_at) if final and newest.ended_at else None,
        metadata=_metadata(request, runs, published, progress, reason, () if final else pods),
    )


def _clock_start(runs: Sequence[Run]) -> datetime:
    """When the job's time began to run: an automatic retry goes on with the clock of the run before it."""
    run = next((run for run in runs if _RETRY_NUMBER_TAG not in run.tags), runs[-1])
    return run.started_at or run.created_at


def _metadata(
    request: CreateBatchCompletionsV2Request,
    runs: Sequence[Run],
    summary: Summary | None,
    progress: JobProgress | None,
    reason: str | None,
    pods: Sequence[str],
) -> dict[str, str]:
    facts: dict[str, object] = {f"{LABEL_TAG_PREFIX}{name}": value for name, value in request.labels.items()}
    facts |= {"run_id": runs[0].run_id, "runs": len(runs)}
    if summary is not None:
        facts |= {
            "items_total": summary.total,
            "items_done": summary.total,
            "items_failed": summary.failed,
            "prompt_tokens": summary.prompt_tokens,
            "completion_tokens": summary.completion_tokens,
            "shards_total": summary.shards,
            "shards_committed": summary.shards,
            "output": summary.output,
            "output_bytes": summary.output_bytes,
        }
        seconds = _inference_seconds(runs[0])
        if len(runs) == 1 and seconds:  # after a retry, the tokens are not this run's alone
            facts["tokens_per_second"] = f"{summary.completion_tokens / seconds:.1f}"
        if summary.errors is not None:
            facts["errors"] = summary.errors
        if summary.warnings:
            facts["warnings"] = "\n".join(summary.warnings)
    elif progress is not None:
        facts |= {
            "items_total": progress.total,
            "items_done": progress.done,
            "items_failed": progress.failed,
            "prompt_tokens": progress.prompt_tokens,
            "completion_tokens": progress.completion_tokens,
            "shards_total": progress.shards_total,
            "shards_committed": progress.shards_committed,
        }
        if progress.workers:
            facts["tokens_per_second"] = f"{progress.tokens_per_second:.1f}"
            facts["replicas"] = len(progress.workers)
    if reason:
        facts["reason"] = reason
    if pods:
        facts["pods"] = "\n".join(pods)
    return {name: str(value) for name, value in facts.items()}


def _inference_seconds(run: Run) -> float:
    """From the first replica's start to the last one's end, engine start included."""
    steps = [step for key, step in run.steps.items() if _op_of(key) == "run_inference"]
    starts = [step.started_at for step in steps if step.started_at is not None]
    ends = [step.ended_at for step in steps if step.ended_at is not None]
    return (max(ends) - min(starts)).total_seconds() if starts and ends else 0.0


def _op_of(step_key: str) -> str:
    """Name of a step's op: without the asset's, and without the replica's."""
    return step_key.removeprefix(f"{ASSET}.").partition("[")[0]


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
