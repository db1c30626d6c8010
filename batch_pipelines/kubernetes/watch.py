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
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from batch_pipelines.kubernetes.api import JobsApi, Json
from batch_pipelines.kubernetes.notebook import Notebook
from batch_pipelines.kubernetes.pod_problems import (
    Problem,
    has_ended,
    is_waiting,
    step_of,
    why_waiting,
)
from batch_pipelines.run_config import INFERENCE_OP

__all__ = ["Patience", "PodWatch", "StandIn"]

_LOOK_SEC: Final = 3.0
_JOIN_SEC: Final = 60.0
_LINGER_SEC: Final = 10.0
_LAST_LOOK_SEC: Final = 0.5
_SETTLE: Final = timedelta(seconds=15)
"""After a stand-in is done Dagster needs a moment to read so; a job deleted before would count as lost."""
_STAND_INS_AT_ONCE: Final = 2
"""Each takes some 150 MiB of the run worker's memory (measured)."""

Result = TypeVar("Result")


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
        notes: Notebook,
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
            notes: Keeps what explains a failure, and tells it.
            all_committed: Whether nothing is left to compute.
            stand_in: Finishes a replica's step here, given its Kubernetes job.
            log: Told what the user should know, a sentence each.
            now: The time.
        """
        self._api = api
        self._selector = f"dagster/run-id={run_id},app.kubernetes.io/component=step_worker"
        self._patience = patience
        self._notes = notes
        self._all_committed = all_committed
        self._stand_in = stand_in
        self._log = log
        self._now = now
        self._given_up: set[str] = set()
        self._started: set[str] = set()
        self._waits_since: dict[str, datetime] = {}
        self._stand_ins: dict[str, StandIn] = {}
        self._done_at: dict[str, datetime] = {}
        self._nothing_left: bool | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look a last time, and end every pod of the run that does not end by itself in a moment.

        It raises nothing: whatever goes wrong here, the run has ended as it has.
        """
        self._stopping.set()
        self._thread.join(_JOIN_SEC)
        for stand_in in self._stand_ins.values():
            stand_in.stop()
        self._or_say("cannot be looked at", self._wait_for_last_steps)
        for job, pods in self._or_say("cannot be looked at", self._jobs_with_pods) or []:
            self._or_say("cannot be explained", self._explain, job, pods)
            if not has_ended(job):
                self._or_say("may be left; a sensor ends them", self._api.delete, _name(job))

    def look(self) -> None:
        """Look once.

        Raises:
            KubernetesUnavailable: The cluster does not answer.
            StorageError: A note cannot be kept, or shards not counted.
        """
        self._nothing_left = None
        jobs = self._jobs_with_pods()
        self._end_earlier_attempts([job for job, _ in jobs])
        for job, pods in jobs:
            name = _name(job)
            self._notes.failures(job, pods)
            if has_ended(job):
                continue
            if name in self._stand_ins:
                self._finish(job, pods)
            elif job["spec"].get("suspend"):
                self._look_at_queued(job)
            elif pods and not all(map(is_waiting, pods)):
                self._started.add(name)
                self._look_at_the_rest_of_a_gang(job, pods)
            else:
                self._look_at_waiting(job, pods)

    def _run(self) -> None:
        silent = ""
        while not self._stopping.wait(_LOOK_SEC):
            try:
                self.look()
                silent = ""
            except Exception as error:
                # Whatever it is: without this watch a pod that never starts would hold up the run for ever.
                if silent != str(error):
                    self._log(f"pods cannot be watched for now: {error!r}")
                silent = str(error)

    def _or_say(self, what: str, act: Callable[..., Result], *given: Any) -> Result | None:
        try:
            return act(*given)
        except Exception as error:
            # The output may be published by now: that stays true whatever becomes of the pods.
            self._log(f"pods of this run {what}: {error!r}")
            return None

    def _jobs_with_pods(self) -> list[tuple[Json, list[Json]]]:
        jobs = self._api.jobs(self._selector)
        pods = self._api.pods(self._selector) if jobs else []
        return [
            (job, [pod for pod in pods if _owner(pod) == job["metadata"]["uid"]])
            for job in sorted(jobs, key=_name)
        ]

    def _wait_for_last_steps(self) -> None:
        """A step's pod outlives the step by some seconds, in which it stores its logs."""
        until = time.monotonic() + _LINGER_SEC
        while time.monotonic() < until:
            jobs = self._jobs_with_pods()
            if not any(pods and not has_ended(job) and not all(map(is_waiting, pods)) for job, pods in jobs):
                return
            time.sleep(_LAST_LOOK_SEC)

    def _end_earlier_attempts(self, jobs: list[Json]) -> None:
        """Two attempts of a step must not both hold GPUs; Dagster counts on the newest."""
        by_step: dict[str, list[Json]] = {}
        for job in jobs:
            by_step.setdefault(step_of(job), []).append(job)
        for attempts in by_step.values():
            # dagster-k8s puts the number of the attempt behind the name, from the second one on.
            *earlier, _newest = sorted(attempts, key=lambda job: (len(_name(job)), _name(job)))
            for job in earlier:
                if not has_ended(job):
                    self._api.delete(_name(job))

    def _explain(self, job: Json, pods: list[Json]) -> None:
        self._notes.failures(job, pods)
        if not has_ended(job) and pods and all(map(is_waiting, pods)) and _name(job) not in self._stand_ins:
            problem = self._notes.why(job, pods)
            if problem is not None:
                self._notes.keep(job, pods[0], problem, "failure")

    def _look_at_queued(self, job: Json) -> None:
        """A job that its queue, such as Kueue's, has not let in, or has put out again."""
        name = _name(job)
        self._waits_since.pop(name, None)  # in the queue it may wait as long as it takes
        if name in self._started:
            # Were it let in again, its pod would find the step started already, and end without a word.
            problem = Problem("Preempted", "its queue took its place away", disruption=True)
            self._notes.keep(job, job, problem, "disruption")
            self._api.delete(name)
        elif _is_replica(job) and self._is_all_done():
            self._replace(job, "is still queued")

    def _look_at_waiting(self, job: Json, pods: list[Json]) -> None:
        """A job of which no pod runs: let it wait, or end it."""
        name = _name(job)
        waited = self._now() - self._waits_since.setdefault(name, self._now())
        if _is_replica(job) and waited >= _SETTLE and self._is_all_done():
            self._replace(job, "has not started")
            return
        unknown = Problem("NotStarted", "it does not start, and nothing says why")
        problem = self._notes.why(job, pods) or unknown
        pod = pods[0] if pods else job
        if waited.total_seconds() >= self._patience.say_sec:
            self._notes.keep(job, pod, problem, "waiting")
        if waited.total_seconds() < self._limit(job, problem):
            return
        if not all(is_waiting(pod) for pod in self._api.pods(f"job-name={name}")):
            return  # it has just started
        self._given_up |= {name, step_of(job)}
        self._notes.keep(job, pod, problem, "given up")
        if _is_replica(job):
            self._replace(job, "does not start")
        else:
            self._api.delete(name)

    def _look_at_the_rest_of_a_gang(self, job: Json, pods: list[Json]) -> None:
        """Of several pods of one engine some run and some wait; the first gives up by itself after a time."""
        for pod in filter(is_waiting, pods):
            waited = self._now() - self._waits_since.setdefault(_name(pod), self._now())
            problem = why_waiting(pod)
            if problem is None or waited.total_seconds() < self._patience.say_sec:
                continue
            if waited.total_seconds() < self._limit(job, problem):
                self._notes.keep(job, pod, problem, "waiting")
            elif _name(job) not in self._given_up:
                self._given_up |= {_name(job), step_of(job)}
                self._notes.keep(job, pod, problem, "given up")
                self._api.delete(_name(job))  # the next attempt says why, and asks for no engine

    def _limit(self, job: Json, problem: Problem) -> float:
        if step_of(job) in self._given_up:
            return min(self._patience.again_sec, self._patience.start_sec)
        if problem.needs_person:
            return min(self._patience.person_sec, self._patience.start_sec)
        return self._patience.start_sec

    def _is_all_done(self) -> bool:
        if self._nothing_left is None:
            self._nothing_left = self._all_committed()
        return self._nothing_left

    def _replace(self, job: Json, why: str) -> None:
        """Finish a replica's step here, unless enough are being finished; the next look comes soon."""
        if sum(stand_in.poll() is None for stand_in in self._stand_ins.values()) < _STAND_INS_AT_ONCE:
            self._log(f"{step_of(job)}: its pod {why}; the step is finished without it")
            self._stand_ins[_name(job)] = self._stand_in(job)

    def _finish(self, job: Json, pods: list[Json]) -> None:
        """Delete a job whose step was finished here, once Dagster knows."""
        name = _name(job)
        if self._stand_ins[name].poll() is None:
            return
        if not all(map(is_waiting, pods)):
            return  # it has started after all, and ends by itself when it finds the step done
        done_at = self._done_at.setdefault(name, self._now())
        if self._now() - done_at >= _SETTLE:
            self._api.delete(name)


def _is_replica(job: Json) -> bool:
    return step_of(job).partition("[")[0] == INFERENCE_OP


def _name(thing: Json) -> str:
    return str(thing["metadata"]["name"])


def _owner(pod: Json) -> str | None:
    return next((str(owner["uid"]) for owner in pod["metadata"].get("ownerReferences") or ()), None)
