"""Whether a Job has come to its end, and to which one."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kubernetes.double.conditions import condition, has_condition
from tests.kubernetes.double.deletion import is_finished
from tests.kubernetes.double.resources import JsonObject

__all__ = ["Verdict", "verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An end.

    Attributes:
        early: Condition from the moment that it is clear.
        final: Condition from the moment that no pod runs any more.
        reason: Reason of both.
        message: Message of both.
    """

    early: str
    final: str
    reason: str
    message: str


_SUCCESS = Verdict(
    "SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
)


def verdict(job: JsonObject, pods: list[JsonObject], active_sec: float) -> Verdict | None:
    """Return a Job's end, or None while it goes on. An end that was told stays.

    Args:
        job: The Job, its ended pods counted.
        pods: Its pods.
        active_sec: For how long it has been running, suspensions left out.
    """
    if has_condition(job, "SuccessCriteriaMet"):
        return _SUCCESS
    told = condition(job, "FailureTarget")
    if told is not None:
        return _failure(told["reason"], told["message"])
    spec, status = job["spec"], job["status"]
    if status.get("failed", 0) > spec["backoffLimit"] or _restarted_too_often(job, pods):
        return _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and active_sec >= deadline:
        return _failure("DeadlineExceeded", "Job was active longer than specified deadline")
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is None:
        running = any(not is_finished(pod) for pod in pods)
        return _SUCCESS if succeeded and not running else None
    return _SUCCESS if succeeded >= spec["completions"] else None


def _restarted_too_often(job: JsonObject, pods: list[JsonObject]) -> bool:
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        status["restartCount"]
        for pod in pods
        if not is_finished(pod)
        for status in pod["status"].get("containerStatuses") or []
    )
    return bool(restarts) and restarts >= max(job["spec"]["backoffLimit"], 1)


def _failure(reason: str, message: str) -> Verdict:
    return Verdict("FailureTarget", "Failed", reason, message)
