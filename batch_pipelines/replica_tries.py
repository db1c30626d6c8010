"""How often a replica is tried, and what its earlier attempts tell.

Attempts are Dagster's: whatever ends a step's process or pod is followed by another. What counts as a try,
and when a replica says that it gives up instead of failing its job, is decided here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg

from batch_pipelines.engines.gang import NodeLost
from batch_pipelines.jobs.pod_notes import PodNote, read_notes, write_note
from batch_pipelines.run_config import INFERENCE_OP
from batch_pipelines.stages.job import Job
from batch_pipelines.storage.errors import StorageError

__all__ = ["LOST_REPLICA", "failures_noted", "replica_key", "why_given_up"]

_NOTE_CHARACTERS = 4000
_REPLICA_TRIES = 3
_REPLICA_ATTEMPTS = 12
LOST_REPLICA = dg.RetryPolicy(max_retries=_REPLICA_ATTEMPTS, delay=2, backoff=dg.Backoff.LINEAR)
"""Attempts that the cluster took away, by a drain or a preemption, do not count as tries; and one drain may
cost two attempts, when both Dagster's look at the pod and the step itself tell of it. The last attempt just
says that the replica gives up: a step that failed would end the job, though others may do all the work."""


def replica_key(replica: int) -> str:
    """Mapping key of a replica's step."""
    return f"replica_{replica:02d}"


def why_given_up(context: dg.OpExecutionContext, job: Job, replica: int) -> str | None:
    """Why a replica is not to be tried again, if so."""
    notes = read_notes(job.store, job.folder, context.run_id, _step_of(replica))
    failures = sum(note.kind == "failure" for note in notes)
    if (
        failures < _REPLICA_TRIES
        and context.retry_number < _REPLICA_ATTEMPTS
        and not any(note.kind == "given up" for note in notes)
    ):
        return None
    told = list(dict.fromkeys(note.message for note in notes if note.kind != "waiting"))
    return "\n".join(told) or f"it was started {context.retry_number} times and lost each time"


@contextmanager
def failures_noted(context: dg.OpExecutionContext, job: Job, replica: int) -> Iterator[None]:
    """Keep why an attempt of a replica failed, which counts the tries and is told when it gives up."""
    try:
        yield
    except Exception as error:
        if isinstance(error, dg.Failure) and error.allow_retries is False:
            raise
        lost = isinstance(error.__cause__, NodeLost)
        told = error.description if isinstance(error, dg.Failure) else f"{type(error).__name__}: {error}"
        note = PodNote(
            step=_step_of(replica),
            pod=f"attempt-{context.retry_number}-of-replica-{replica}",
            reason=type(error.__cause__ or error).__name__,
            message=(told or "")[:_NOTE_CHARACTERS],
            kind="disruption" if lost else "failure",
            at=datetime.now(UTC),
        )
        try:
            write_note(job.store, job.folder, context.run_id, note)
        except StorageError as unwritten:
            context.log.warning(f"why this attempt failed cannot be kept: {unwritten}")
        raise


def _step_of(replica: int) -> str:
    return f"{INFERENCE_OP}[{replica_key(replica)}]"
