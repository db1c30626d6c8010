"""Tells why pods fail or wait: to the run's log, and to the notes in the job's folder, each thing once."""

from collections.abc import Callable
from datetime import datetime

from batch_pipelines.jobs.pod_notes import Kind, PodNote
from batch_pipelines.kubernetes.api import JobsApi, Json
from batch_pipelines.kubernetes.pod_problems import Problem, ended_badly, job_failure, step_of, why_waiting

__all__ = ["Notebook"]


class Notebook:
    """What has been told of one run's pods."""

    def __init__(
        self,
        api: JobsApi,
        keep_note: Callable[[PodNote], None],
        log: Callable[[str], None],
        now: Callable[[], datetime],
    ) -> None:
        """See the class.

        Args:
            api: The cluster.
            keep_note: Keeps a note.
            log: Told what the user should know, a sentence each.
            now: The time.
        """
        self._api = api
        self._keep_note = keep_note
        self._log = log
        self._now = now
        self._kept: set[tuple[str, str, str]] = set()
        self._explained: set[str] = set()

    def failures(self, job: Json, pods: list[Json]) -> None:
        """Tell how a job's pods ended, if badly; of a job whose pod is gone, that it is."""
        found = False
        for pod in pods:
            problem = ended_badly(pod)
            if problem is not None:
                found = True
                self.keep(job, pod, problem, "disruption" if problem.disruption else "failure")
        whole = job_failure(job)
        if whole is not None and not found and job["metadata"]["name"] not in self._explained:
            self.keep(job, job, whole, "disruption" if whole.disruption else "failure")

    def keep(self, job: Json, thing: Json, problem: Problem, kind: Kind) -> None:
        """Tell a problem of a job's pod, or of the job itself, unless that was done.

        Raises:
            StorageError: It cannot be kept.
        """
        name = str(thing["metadata"]["name"])
        if (name, problem.reason, kind) in self._kept:
            return
        step, at = step_of(job), self._now()
        message = f"{problem.message} ({problem.reason}, pod {name})"
        if kind == "waiting":
            message = f"at {at:%H:%M} UTC it still waited: {message}"
        self._keep_note(
            PodNote(step=step, pod=name, reason=problem.reason, message=message, kind=kind, at=at)
        )
        self._kept.add((name, problem.reason, kind))
        if kind != "waiting":
            self._explained.add(job["metadata"]["name"])
        self._log(f"{step}: {message}")

    def why(self, job: Json, pods: list[Json]) -> Problem | None:
        """Why a job's pods do not start, or are not even made; None if nothing tells."""
        for pod in pods:
            problem = why_waiting(pod)
            if problem is not None:
                return problem
        if pods:
            return None
        warnings = self._api.warnings_of(job["metadata"]["name"])
        return Problem("FailedCreate", f"its pod cannot be made: {warnings[-1]}") if warnings else None
