"""Watches the pods of one run from its run worker: says why they fail, and ends those that cannot start.

Dagster asks only whether a step's Kubernetes job has failed. A pod that no node takes, or whose image cannot
be pulled, has not failed: it would hold up the whole run for ever, also when the other replicas have done all
the work. Such a replica is finished in its place by a stand-in, which has no engine (see
`batch_pipelines.kubernetes.stand_in`), so that the merge goes on with what there is.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from batch_pipelines.jobs.pod_notes import PodNote
from batch_pipelines.kubernetes.api import KubernetesUnavailable
from batch_pipelines.kubernetes.pod_problems import (
    Problem,
    age_sec,
    ended_badly,
    has_ended,
    is_waiting,
    job_failure,
    step_of,
    why_waiting,
)
from batch_pipelines.run_config import INFERENCE_OP
from batch_pipelines.storage.errors import StorageError

__all__ = ["JobsApi", "Patience", "PodWatch", "StandIn"]

_LOOK_SEC: Final = 3.0
_JOIN_SEC: Final = 60.0
_LINGER_SEC: Final = 10.0
_LAST_LOOK_SEC: Final = 0.5
_SETTLE_SEC: Final = 15.0
"""After a stand-in is done Dagster needs a moment to read so; a job deleted before would count as lost."""

Json = dict[str, Any]


class JobsApi(Protocol):
    """What is asked of the cluster; see `batch_pipelines.kubernetes.api.RunJobs`."""

    def jobs(self, selector: str) -> list[Json]:
        """The jobs with these labels."""
        ...

    def pods(self, selector: str) -> list[Json]:
        """The pods with these labels."""
        ...

    def warnings_of(self, name: str) -> list[str]:
        """What the cluster complains of about an object."""
        ...

    def delete(self, name: str) -> None:
        """Delete a job and its pods."""
        ...


class StandIn(Protocol):
    """A step being finished here in place of its pod."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        ...

    def stop(self) -> None:
        """End it, if it has not ended."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a pod may wait, in seconds.

    Attributes:
        start_sec: For a node, or anything else that may yet come.
        person_sec: With an image or a set-up that is wrong, which seldom mends itself.
        again_sec: For a step of which a pod has waited in vain already.
        say_sec: Before the user is told what it waits for.
    """

    start_sec: float
    person_sec: float = 300.0
    again_sec: float = 30.0
    say_sec: float = 60.0


class PodWatch:
    """Looks at a run's pods every few seconds, in a thread of its own."""

    def __init__(
        self,
        api: JobsApi,
        run_id: str,
        *,
        patience: Patience,
        keep_note: Callable[[PodNote], None],
        all_committed: Callable[[], bool],
        stand_in: Callable[[Mapping[str, Any]], StandIn],
        log: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """See the class.

        Args:
            api: The cluster.
            run_id: The run.
            patience: How long pods may wait.
            keep_note: Keeps what explains a failure.
            all_committed: Whether nothing is left to compute.
            stand_in: Finishes a replica's step here, given its Kubernetes job.
            log: Told what the user should know, a sentence each.
            now: The time.
        """
        self._api = api
        self._selector = f"dagster/run-id={run_id},app.kubernetes.io/component=step_worker"
        self._patience = patience
        self._keep_note = keep_note
        self._all_committed = all_committed
        self._stand_in = stand_in
        self._log = log
        self._now = now
        self._noted: set[tuple[str, str]] = set()
        self._given_up: set[str] = set()
        self._told: set[str] = set()
        self._started: set[str] = set()
        self._stand_ins: dict[str, StandIn] = {}
        self._done_at: dict[str, datetime] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look a last time, and end every pod of the run that does not end by itself in a moment."""
        self._stopping.set()
        self._thread.join(_JOIN_SEC)
        for stand_in in self._stand_ins.values():
            stand_in.stop()
        try:
            self._wait_for_last_steps()
            for job, pods in self._jobs_with_pods():
                self._note_failures(job, pods)
                if not has_ended(job):
                    self._note_waiting(job, pods)
                    self._api.delete(_name(job))
        except (KubernetesUnavailable, StorageError) as error:
            self._log(
                f"pods of this run may be left, the cluster does not answer; a sensor ends them: {error}"
            )

    def _wait_for_last_steps(self) -> None:
        """A step's pod outlives the step by some seconds, in which it stores its logs."""
        until = time.monotonic() + _LINGER_SEC
        while time.monotonic() < until:
            jobs = self._jobs_with_pods()
            if not any(pods and not has_ended(job) and not all(map(is_waiting, pods)) for job, pods in jobs):
                return
            time.sleep(_LAST_LOOK_SEC)

    def look(self) -> None:
        """Look once.

        Raises:
            KubernetesUnavailable: The cluster does not answer.
            StorageError: A note cannot be kept, or shards not counted.
        """
        for job, pods in self._jobs_with_pods():
            self._note_failures(job, pods)
            if has_ended(job):
                continue
            if _name(job) in self._stand_ins:
                self._finish(job)
            elif not all(is_waiting(pod) for pod in pods):
                self._started.add(_name(job))
            elif job["spec"].get("suspend") and _name(job) in self._started:
                # Its queue took its place away. Were it let in again, its pod would find the step started
                # already, and end without having done anything.
                self._note(job, _name(job), Problem("Preempted", "its queue took its place away"))
                self._api.delete(_name(job))
            else:
                self._consider(job, pods)

    def _run(self) -> None:
        silent = ""
        while not self._stopping.wait(_LOOK_SEC):
            try:
                self.look()
                silent = ""
            except (KubernetesUnavailable, StorageError) as error:
                if silent != str(error):
                    self._log(f"pods cannot be watched for now: {error}")
                silent = str(error)

    def _jobs_with_pods(self) -> list[tuple[Json, list[Json]]]:
        # Pods first: a pod of a job that is listed after it cannot be missing then.
        jobs = self._api.jobs(self._selector)
        pods = self._api.pods(self._selector) if jobs else []
        return [
            (job, [pod for pod in pods if _owner(pod) == job["metadata"]["uid"]])
            for job in sorted(jobs, key=_name)
        ]

    def _note_failures(self, job: Json, pods: list[Json]) -> None:
        found = False
        for pod in pods:
            problem = ended_badly(pod)
            if problem is not None:
                found = True
                self._note(job, _name(pod), problem)
        whole = job_failure(job)
        if whole is not None and not found:
            self._note(job, _name(job), whole)

    def _note_waiting(self, job: Json, pods: list[Json]) -> None:
        if pods and all(is_waiting(pod) for pod in pods) and _name(job) not in self._stand_ins:
            problem = self._why(job, pods)
            if problem is not None:
                self._note(job, _name(pods[0]), problem)

    def _note(self, job: Json, pod: str, problem: Problem, *, given_up: bool = False) -> None:
        if (pod, problem.reason) in self._noted:
            return
        step = step_of(job)
        message = f"{problem.message} ({problem.reason}, pod {pod})"
        self._keep_note(
            PodNote(
                step=step,
                pod=pod,
                reason=problem.reason,
                message=message,
                given_up=given_up,
                at=self._now(),
            )
        )
        self._noted.add((pod, problem.reason))
        self._log(f"{step}: {message}")

    def _why(self, job: Json, pods: list[Json]) -> Problem | None:
        for pod in pods:
            problem = why_waiting(pod)
            if problem is not None:
                return problem
        if pods:
            return None
        warnings = self._api.warnings_of(_name(job))
        return Problem("FailedCreate", f"its pod cannot be made: {warnings[-1]}") if warnings else None

    def _consider(self, job: Json, pods: list[Json]) -> None:
        """A job of which no pod runs: let it wait, or end it."""
        name, step = _name(job), step_of(job)
        is_replica = step.partition("[")[0] == INFERENCE_OP
        waited = age_sec(job, self._now())
        suspended = bool(job["spec"].get("suspend"))
        if is_replica and waited >= _SETTLE_SEC and self._all_committed():
            self._log(f"{step}: its pod has not started, and nothing is left to do")
            self._stand_ins[name] = self._stand_in(job)
            return
        problem = self._why(job, pods) or Problem(
            "NotStarted", "it waits in a queue" if suspended else "it does not start, and nothing says why"
        )
        if waited >= self._patience.say_sec and name not in self._told:
            self._told.add(name)
            self._log(f"{step}: still waiting: {problem.message}")
        if suspended or waited < self._limit(step, problem):
            return  # a suspended job is its queue's to admit
        self._given_up.add(step)
        self._note(job, _name(pods[0]) if pods else name, problem, given_up=True)
        if is_replica:
            self._stand_ins[name] = self._stand_in(job)
        else:
            self._api.delete(name)

    def _limit(self, step: str, problem: Problem) -> float:
        if step in self._given_up:
            return min(self._patience.again_sec, self._patience.start_sec)
        if problem.needs_person:
            return min(self._patience.person_sec, self._patience.start_sec)
        return self._patience.start_sec

    def _finish(self, job: Json) -> None:
        name = _name(job)
        if self._stand_ins[name].poll() is None:
            return
        done_at = self._done_at.setdefault(name, self._now())
        if (self._now() - done_at).total_seconds() >= _SETTLE_SEC:
            self._api.delete(name)


def _name(thing: Json) -> str:
    return str(thing["metadata"]["name"])


def _owner(pod: Json) -> str | None:
    return next((str(owner["uid"]) for owner in pod["metadata"].get("ownerReferences") or ()), None)
