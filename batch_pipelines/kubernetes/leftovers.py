"""Ends the Kubernetes jobs of runs that are over, whoever was to end them.

A run worker ends its steps' pods itself, unless it was killed; a run that never started leaves its run
worker's pod waiting. Both would hold GPUs, or take them one day. The sensor that calls this is in
`batch_pipelines.kubernetes.sensors`.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime

from batch_pipelines.jobs.pod_notes import PodNote
from batch_pipelines.kubernetes.api import JobsApi, Json, KubernetesUnavailable
from batch_pipelines.kubernetes.pod_problems import ended_badly, has_ended, why_waiting
from batch_pipelines.storage.errors import StorageError

__all__ = ["end_leftovers"]

_RUN_LABEL = "dagster/run-id"
_RUN_WORKERS = "app.kubernetes.io/component=run_worker"


def end_leftovers(
    api: JobsApi,
    ended_runs: Callable[[Collection[str]], Collection[str]],
    keep_note: Callable[[str, PodNote], None],
    log: Callable[[str], None],
) -> list[str]:
    """Delete what runs have left behind, and keep why their run workers' pods ended badly.

    Notes come second, and nothing that goes wrong with one job keeps the others from being deleted.

    Args:
        api: The cluster.
        ended_runs: Which of these runs are ours and over.
        keep_note: Keeps a note on a pod of a run, given the run's id.
        log: Told what could not be done.

    Returns:
        Names of the jobs that were deleted.

    Raises:
        KubernetesUnavailable: The cluster does not answer at all.
    """
    jobs = [job for job in api.jobs(_RUN_LABEL) if not has_ended(job)]
    workers = [pod for pod in api.pods(_RUN_WORKERS) if _problem_of(pod) is not None]
    asked = {_run_of(thing) for thing in (*jobs, *workers)}
    over = set(ended_runs(asked)) if asked else set()
    deleted = []
    for job in jobs:
        name = str(job["metadata"]["name"])
        if _run_of(job) in over:
            try:
                api.delete(name)
                deleted.append(name)
            except KubernetesUnavailable as error:
                log(f"{name} cannot be deleted now: {error}")
    for pod in workers:
        if _run_of(pod) in over:
            try:
                keep_note(_run_of(pod), _note_on(pod))
            except StorageError as error:
                log(f"why {pod['metadata']['name']} failed cannot be kept now: {error}")
    return deleted


def _problem_of(pod: Json) -> tuple[str, str] | None:
    problem = ended_badly(pod) or why_waiting(pod)
    return (problem.reason, problem.message) if problem else None


def _note_on(pod: Json) -> PodNote:
    name = str(pod["metadata"]["name"])
    reason, told = _problem_of(pod) or ("", "")
    message = f"the run's own pod: {told} ({reason}, pod {name})"
    return PodNote(step="", pod=name, reason=reason, message=message, at=datetime.now(UTC))


def _run_of(thing: Json) -> str:
    return str(thing["metadata"].get("labels", {}).get(_RUN_LABEL, ""))
