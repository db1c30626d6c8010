"""What a pod's status says is wrong, in words a user can act on. Pure functions on the API's own JSON.

Who asks the cluster, and what is done about a problem, is in `batch_pipelines.kubernetes.watch`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "Problem",
    "ended_badly",
    "has_ended",
    "is_waiting",
    "job_failure",
    "step_of",
    "why_waiting",
]

Json = Mapping[str, Any]

_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_SETUP: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_SIGKILL: Final = 137
_SIGTERM: Final = 143


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod ended badly, or does not start.

    Attributes:
        reason: In Kubernetes' words.
        message: A sentence for the user, without the pod's name.
        needs_person: Whether waiting longer seldom helps: the image or the set-up is wrong.
        disruption: Whether the cluster took its place away, which is not the pod's fault.
    """

    reason: str
    message: str
    needs_person: bool = False
    disruption: bool = False


_LOST: Final = Problem("PodLost", "it is gone: it was deleted, or its node was lost", disruption=True)


def is_waiting(pod: Json) -> bool:
    """Whether a pod has not started to run."""
    return bool(pod["status"].get("phase") == "Pending")


def why_waiting(pod: Json) -> Problem | None:
    """Why a pod does not start, if its status tells."""
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting", {})
        reason, detail = waiting.get("reason"), waiting.get("message") or ""
        if reason in _IMAGE:
            return Problem(
                reason, f"its image {status.get('image')} cannot be pulled: {detail}".rstrip(": "), True
            )
        if reason in _SETUP:
            return Problem(reason, f"its container cannot be set up: {detail}".rstrip(": "), True)
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            detail = condition.get("message") or "no node has room for it"
            return Problem(
                condition.get("reason") or "Unschedulable",
                f"no node takes it: {detail} It asks for {_asked(pod)}",
            )
    if any("waiting" in status.get("state", {}) for status in _containers(pod)):
        return Problem("ContainerCreating", "its container is being made: image, volumes, network")
    return None


def ended_badly(pod: Json) -> Problem | None:
    """Why a pod ended without success, if it did."""
    status = pod["status"]
    reason, detail = status.get("reason") or "", status.get("message") or ""
    if status.get("phase") != "Failed":
        return None
    if reason == "Evicted":
        return Problem(reason, f"it was evicted from its node: {detail}".rstrip(": "), disruption=True)
    if reason == "DeadlineExceeded":
        return Problem(reason, "it was ended at the job's time limit, max_runtime_sec")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            why = condition.get("message") or condition.get("reason") or ""
            what = f"the cluster took its place away: {why}"
            return Problem(condition.get("reason") or "Disrupted", what, disruption=True)
    if reason:
        return Problem(reason, f"it was lost with its node: {detail}".rstrip(": "), disruption=True)
    for container in _containers(pod):
        ended = container.get("state", {}).get("terminated") or {}
        code = ended.get("exitCode")
        if ended.get("reason") == "OOMKilled":
            return Problem(
                "OOMKilled",
                f"it used more memory than its limit of {_memory(pod)} and was killed; ask for more `memory`",
            )
        if code:
            return Problem(ended.get("reason") or "Error", f"it ended with exit code {code}{_signal(code)}")
    return Problem("Failed", "it failed, and its status does not say why")


def job_failure(job: Json) -> Problem | None:
    """Why a Kubernetes job failed, if it did, as its own conditions tell."""
    for condition in job["status"].get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            if condition.get("reason") == "DeadlineExceeded":
                return Problem("DeadlineExceeded", "it was ended at the job's time limit, max_runtime_sec")
            return _LOST
    return _LOST if job["status"].get("failed") else None


def has_ended(job: Json) -> bool:
    """Whether a Kubernetes job is complete or has failed."""
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in job["status"].get("conditions") or ()
    )


def step_of(job: Json) -> str:
    """The step of a Kubernetes job, such as `run_inference[replica_00]`; empty for that of a run worker."""
    for variable in job["spec"]["template"]["spec"]["containers"][0].get("env") or ():
        if variable["name"] == "DAGSTER_RUN_STEP_KEY":
            return str(variable["value"]).rpartition(".")[2]
    return ""


def _containers(pod: Json) -> Sequence[Json]:
    status = pod["status"]
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _limits(pod: Json) -> Mapping[str, str]:
    resources = pod["spec"]["containers"][0].get("resources") or {}
    return resources.get("limits") or resources.get("requests") or {}


def _memory(pod: Json) -> str:
    return _limits(pod).get("memory", "its node's memory")


def _asked(pod: Json) -> str:
    asked = ", ".join(f"{name} {amount}" for name, amount in _limits(pod).items())
    wanted = [f"{name}={value}" for name, value in (pod["spec"].get("nodeSelector") or {}).items()]
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for rule in term.get("matchExpressions") or ():
            values = "|".join(rule.get("values") or ())
            wanted.append(f"{rule['key']} {rule['operator']} {values}".rstrip())
    where = f" on a node with {', '.join(wanted)}" if wanted else ""
    return f"{asked or 'nothing in particular'}{where}"


def _signal(code: int) -> str:
    return {_SIGKILL: " (killed)", _SIGTERM: " (told to end)"}.get(code, "")
