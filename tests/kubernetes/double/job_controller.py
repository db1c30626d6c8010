"""The Job controller: makes pods, counts how they ended, and ends the Job."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from itertools import islice

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.conditions import condition, has_condition, set_condition
from tests.kubernetes.double.deletion import JOB_TRACKING, DeleteOptions, delete, drop_finalizer, is_finished
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.events import EventRecorder
from tests.kubernetes.double.job_pods import (
    completed_indexes,
    create_pod,
    format_indexes,
    is_indexed,
    pod_index,
    pods_of,
)
from tests.kubernetes.double.job_verdict import Verdict, verdict
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["JobController"]

_FIRST_BACKOFF_SEC = 10
_LONGEST_BACKOFF_SEC = 600


@dataclass(slots=True)
class _Memory:
    """What the controller knows of a Job beside its object: moments finer than seconds."""

    active_since: float = 0.0
    finished: float = 0.0
    failures_in_a_row: int = 0
    last_failure: float = 0.0


class JobController:
    """Brings Jobs to their end, as Kubernetes 1.32 does."""

    def __init__(self, store: Store, *, wait_scale: float) -> None:
        self._store = store
        self._wait_scale = wait_scale
        self._events = EventRecorder(store, "job-controller")
        self._memory: dict[str, _Memory] = {}

    def reconcile(self) -> None:
        """Take every Job a step further."""
        with self._store.lock:
            for job in self._store.list("jobs"):
                with contextlib.suppress(ApiFailure):
                    self._reconcile(job)
            uids = {job["metadata"]["uid"] for job in self._store.list("jobs")}
            for pod in self._store.list("pods"):
                references = pod["metadata"].get("ownerReferences") or []
                if not any(reference["uid"] in uids for reference in references):
                    self._untrack(pod)  # its Job is gone: nobody counts it

    def _reconcile(self, job: JsonObject) -> None:
        metadata = job["metadata"]
        memory = self._memory.setdefault(metadata["uid"], _Memory())
        pods = pods_of(self._store, job)
        if metadata.get("deletionTimestamp"):
            for pod in pods:
                if is_finished(pod) or pod["metadata"].get("deletionTimestamp"):
                    self._untrack(pod)
            return
        if has_condition(job, "Complete", "Failed"):
            for pod in pods:
                self._untrack(pod)
            self._expire(job, memory)
            return
        suspended = bool(job["spec"].get("suspend"))
        with self._store.edit("jobs", metadata["namespace"], metadata["name"]) as edited:
            self._follow_suspension(edited, memory, suspended)
            self._count(edited, pods, memory, suspended)
        job = self._store.get("jobs", metadata["namespace"], metadata["name"])
        if suspended:
            self._delete_active(job)
        else:
            active_sec = time.monotonic() - memory.active_since
            decided = verdict(job, pods_of(self._store, job), active_sec)
            if decided:
                self._end(job, decided)
            else:
                self._make_pods(job, memory)
        self._write_counts(job)

    def _follow_suspension(self, job: JsonObject, memory: _Memory, suspended: bool) -> None:
        known = condition(job, "Suspended")
        if suspended:
            if job["status"].pop("startTime", None) or known is None or known["status"] != "True":
                set_condition(job, "Suspended", "True", "JobSuspended", "Job suspended")
                self._events.normal(job, "Suspended", "Job suspended")
        elif not job["status"].get("startTime"):
            job["status"]["startTime"] = now()
            memory.active_since = time.monotonic()
            if known is not None:
                set_condition(job, "Suspended", "False", "JobResumed", "Job resumed")
                self._events.normal(job, "Resumed", "Job resumed")

    def _count(self, job: JsonObject, pods: list[JsonObject], memory: _Memory, suspended: bool) -> None:
        status = job["status"]
        for pod in pods:
            if JOB_TRACKING not in (pod["metadata"].get("finalizers") or []):
                continue
            if pod["status"]["phase"] == "Succeeded":
                if is_indexed(job):
                    done = completed_indexes(job) | {pod_index(pod)}
                    status.update(completedIndexes=format_indexes(done), succeeded=len(done))
                else:
                    status["succeeded"] = status.get("succeeded", 0) + 1
                memory.failures_in_a_row = 0
            # A pod that is being deleted has failed, however it ends (policy TerminatingOrFailed).
            elif pod["status"]["phase"] == "Failed" or pod["metadata"].get("deletionTimestamp"):
                if not suspended:
                    status["failed"] = status.get("failed", 0) + 1
                    memory.failures_in_a_row += 1
                    memory.last_failure = time.monotonic()
            else:
                continue
            self._untrack(pod)

    def _end(self, job: JsonObject, decided: Verdict) -> None:
        """Say what the Job comes to, end its pods, and once they are gone say that it is finished."""
        metadata = job["metadata"]
        if not has_condition(job, decided.early):
            with self._store.edit("jobs", metadata["namespace"], metadata["name"]) as edited:
                set_condition(edited, decided.early, "True", decided.reason, decided.message)
        self._delete_active(job)
        if any(not is_finished(pod) for pod in pods_of(self._store, job)):
            return
        with self._store.edit("jobs", metadata["namespace"], metadata["name"]) as edited:
            self._count(edited, pods_of(self._store, job), _Memory(), False)
            set_condition(edited, decided.final, "True", decided.reason, decided.message)
            if decided.final == "Complete":
                edited["status"]["completionTime"] = now()
        self._memory[metadata["uid"]].finished = time.monotonic()
        if decided.final == "Complete":
            self._events.normal(job, "Completed", "Job completed")
        else:
            self._events.warning(job, decided.reason, decided.message)

    def _delete_active(self, job: JsonObject) -> None:
        for pod in pods_of(self._store, job):
            if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp"):
                delete(self._store, "pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
                self._events.normal(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _make_pods(self, job: JsonObject, memory: _Memory) -> None:
        spec, status = job["spec"], job["status"]
        active = [pod for pod in pods_of(self._store, job) if _is_active(pod)]
        wanted = int(spec["parallelism"])
        if spec.get("completions") is not None:
            wanted = min(wanted, spec["completions"] - status.get("succeeded", 0))
        elif status.get("succeeded"):
            wanted = len(active)
        missing = wanted - len(active)
        if missing <= 0 or self._backs_off(memory):
            return
        indexes: list[int | None] = [None] * missing
        if is_indexed(job):
            taken = completed_indexes(job) | {pod_index(pod) for pod in active}
            free = (index for index in range(spec["completions"]) if index not in taken)
            indexes = list(islice(free, missing))
        for index in indexes:
            try:
                pod = create_pod(self._store, job, index)
            except ApiFailure as failure:
                self._events.warning(job, "FailedCreate", f"Error creating: {failure.message}")
                return
            self._events.normal(job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

    def _backs_off(self, memory: _Memory) -> bool:
        if not memory.failures_in_a_row:
            return False
        wait: float = min(_FIRST_BACKOFF_SEC * 2 ** (memory.failures_in_a_row - 1), _LONGEST_BACKOFF_SEC)
        return time.monotonic() - memory.last_failure < wait * self._wait_scale

    def _write_counts(self, job: JsonObject) -> None:
        pods = pods_of(self._store, job)
        active = [pod for pod in pods if _is_active(pod)]
        terminating = [
            pod for pod in pods if pod["metadata"].get("deletionTimestamp") and not is_finished(pod)
        ]
        with self._store.edit("jobs", job["metadata"]["namespace"], job["metadata"]["name"]) as edited:
            status = edited["status"]
            status["terminating"] = len(terminating)
            status["ready"] = sum(has_condition(pod, "Ready") for pod in active)
            status["uncountedTerminatedPods"] = {}
            status.pop("active", None)
            if active:
                status["active"] = len(active)

    def _expire(self, job: JsonObject, memory: _Memory) -> None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is not None and time.monotonic() - memory.finished >= ttl:
            metadata = job["metadata"]
            options = DeleteOptions(propagation="Foreground")
            delete(self._store, "jobs", metadata["namespace"], metadata["name"], options)

    def _untrack(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        if JOB_TRACKING in (metadata.get("finalizers") or []):
            with self._store.edit("pods", metadata["namespace"], metadata["name"]) as edited:
                drop_finalizer(edited, JOB_TRACKING)


def _is_active(pod: JsonObject) -> bool:
    return not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")
