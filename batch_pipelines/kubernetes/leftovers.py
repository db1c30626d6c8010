"""Ends the Kubernetes jobs of runs that are over, whoever was to end them.

A run worker ends its steps' pods itself, unless it was killed; a run that never started leaves its run
worker's pod waiting. Both would hold GPUs, or take them one day. The sensor that calls this is in
`batch_pipelines.kubernetes.sensors`.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from batch_pipelines.jobs.pod_notes import PodNote
from batch_pipelines.kubernetes.pod_problems import ended_badly, has_ended, step_of, why_waiting
from batch_pipelines.kubernetes.watch import JobsApi

__all__ = ["end_leftovers"]

_RUN_LABEL = "dagster/run-id"


def end_leftovers(
    api: JobsApi,
    ended_runs: Callable[[Collection[str]], Collection[str]],
    keep_note: Callable[[str, PodNote], None],
) -> list[str]:
    """Delete what runs have left behind, and keep why their run workers' pods ended badly.

    Args:
        api: The cluster.
        ended_runs: Which of these runs are ours and over.
        keep_note: Keeps a note on a pod of a run, given the run's id.

    Returns:
        Names of the jobs that were deleted.

    Raises:
        KubernetesUnavailable: The cluster does not answer.
        StorageError: A note cannot be kept.
    """
    jobs = api.jobs(_RUN_LABEL)
    over = set(ended_runs({_run_of(job) for job in jobs})) if jobs else set()
    deleted = []
    for job in jobs:
        run_id, name = _run_of(job), job["metadata"]["name"]
        if run_id not in over:
            continue
        if not step_of(job):
            for pod in api.pods(f"job-name={name}"):
                _note(run_id, pod, keep_note)
        if not has_ended(job):
            api.delete(name)
            deleted.append(name)
    return deleted


def _note(run_id: str, pod: Mapping[str, Any], keep_note: Callable[[str, PodNote], None]) -> None:
    problem = ended_badly(pod) or why_waiting(pod)
    if problem is None:
        return
    name = pod["metadata"]["name"]
    message = f"the run's own pod: {problem.message} ({problem.reason}, pod {name})"
    keep_note(
        run_id, PodNote(step="", pod=name, reason=problem.reason, message=message, at=datetime.now(UTC))
    )


def _run_of(job: Mapping[str, Any]) -> str:
    return str(job["metadata"]["labels"][_RUN_LABEL])
