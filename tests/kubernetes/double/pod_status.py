"""What a kubelet writes into a pod's status: states of containers, conditions, the phase that follows."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.double.conditions import set_condition
from tests.kubernetes.double.resources import JsonObject

__all__ = [
    "begin",
    "container_status",
    "fail_pod",
    "finish",
    "refresh",
    "terminated",
]


def begin(pod: JsonObject, host_ip: str, pod_ip: str, moment: str) -> None:
    """A kubelet has taken the pod."""
    status = pod["status"]
    status.update(
        startTime=moment, hostIP=host_ip, hostIPs=[{"ip": host_ip}], podIP=pod_ip, podIPs=[{"ip": pod_ip}]
    )
    inits = pod["spec"].get("initContainers") or []
    if inits:
        status["initContainerStatuses"] = [_new(container, "PodInitializing") for container in inits]
    waiting = "PodInitializing" if inits else "ContainerCreating"
    status["containerStatuses"] = [_new(container, waiting) for container in pod["spec"]["containers"]]
    refresh(pod)


def container_status(pod: JsonObject, name: str) -> JsonObject:
    """Return the status of a container, to be written to."""
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in pod["status"].get(field) or []:
            if status["name"] == name:
                found: JsonObject = status
                return found
    raise KeyError(name)


def terminated(status: JsonObject) -> JsonObject | None:
    """Return the terminated state of a container's status."""
    state: JsonObject | None = status["state"].get("terminated")
    return state


def refresh(pod: JsonObject) -> None:
    """Set conditions, and phase Running, from the states of the containers."""
    inits = pod["status"].get("initContainerStatuses") or []
    containers = pod["status"]["containerStatuses"]
    initialized = all((terminated(one) or {}).get("exitCode") == 0 for one in inits)
    ready = all(one["ready"] for one in containers)
    unready = [one["name"] for one in containers if not one["ready"]]
    why = (
        ("", "")
        if ready
        else ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    )
    set_condition(pod, "PodReadyToStartContainers", "True")
    set_condition(pod, "Initialized", "True" if initialized else "False")
    for name in ("Ready", "ContainersReady"):
        set_condition(pod, name, "True" if ready else "False", *why)
    if pod["status"]["phase"] == "Pending" and initialized:
        started = [one for one in containers if "running" in one["state"] or one["restartCount"]]
        if started and all("waiting" not in one["state"] or one["restartCount"] for one in containers):
            pod["status"]["phase"] = "Running"


def finish(pod: JsonObject) -> None:
    """All containers have ended for good, or never started and never will."""
    statuses = [
        *(pod["status"].get("initContainerStatuses") or []),
        *(pod["status"].get("containerStatuses") or []),
    ]
    codes = [(terminated(one) or {"exitCode": 137})["exitCode"] for one in statuses]
    done = bool(codes) and not any(codes)
    pod["status"]["phase"] = "Succeeded" if done else "Failed"
    for one in statuses:
        one.update(ready=False, started=False)
    reason = "PodCompleted" if done else "PodFailed"
    for name in ("Ready", "ContainersReady"):
        set_condition(pod, name, "False", reason)


def fail_pod(pod: JsonObject, reason: str, message: str) -> None:
    """Fail a pod whatever its containers say."""
    for one in pod["status"].get("containerStatuses") or []:
        if "waiting" in one["state"]:
            one["state"] = {
                "terminated": {
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "message": "The container could not be located when the pod was terminated",
                }
            }
    finish(pod)
    pod["status"].update(phase="Failed", reason=reason, message=message)


def _new(container: dict[str, Any], waiting: str) -> JsonObject:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "lastState": {},
        "state": {"waiting": {"reason": waiting}},
    }
