"""Jobs and pods as the Kubernetes API gives them, and a cluster that is just a list of them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from batch_pipelines.kubernetes.api import KubernetesUnavailable

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
IMAGE = "registry.example/batch:1"


def job(
    step: str = "run_inference[replica_00]",
    *,
    name: str = "dagster-step-1",
    run_id: str = "run",
    failed: str | None = None,
    complete: bool = False,
    suspend: bool = False,
) -> dict[str, Any]:
    """A Kubernetes job of a step; of a run worker if `step` is empty."""
    env = [{"name": "DAGSTER_RUN_STEP_KEY", "value": f"batch_completions.{step}"}] if step else []
    conditions = [{"type": "Failed", "status": "True", "reason": failed}] if failed else []
    if complete:
        conditions = [{"type": "Complete", "status": "True"}]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"dagster/run-id": run_id},
        },
        "spec": {
            "suspend": suspend,
            "template": {"spec": {"containers": [{"args": ["true"], "env": env}]}},
        },
        "status": {"conditions": conditions, **({"failed": 1} if failed else {})},
    }


def pod(
    owner: dict[str, Any],
    phase: str = "Running",
    *,
    reason: str = "",
    message: str = "",
    state: dict[str, Any] | None = None,
    conditions: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A pod of a job."""
    name = owner["metadata"]["name"]
    limits = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
    return {
        "metadata": {
            "name": f"{name}-x",
            "ownerReferences": [{"kind": "Job", "uid": f"uid-{name}"}],
            "labels": {"job-name": name, **owner["metadata"]["labels"]},
        },
        "spec": {
            "nodeSelector": {"gpu": "a10"},
            "containers": [{"resources": {"limits": limits}}],
        },
        "status": {
            "phase": phase,
            "reason": reason,
            "message": message,
            "conditions": list(conditions),
            "containerStatuses": [{"image": IMAGE, "state": state}] if state else [],
        },
    }


def unschedulable(owner: dict[str, Any]) -> dict[str, Any]:
    """A pod that no node takes."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    return pod(owner, "Pending", conditions=[condition])


def waiting_for_image(owner: dict[str, Any]) -> dict[str, Any]:
    """A pod whose image cannot be pulled."""
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    return pod(owner, "Pending", state=state)


def terminated(owner: dict[str, Any], reason: str, code: int) -> dict[str, Any]:
    """A pod whose container failed."""
    return pod(owner, "Failed", state={"terminated": {"reason": reason, "exitCode": code}})


class FakeCluster:
    """A cluster that is a list of jobs and pods; both may be changed between looks."""

    def __init__(self, *things: dict[str, Any]) -> None:
        self.deleted: list[str] = []
        self.warnings: dict[str, list[str]] = {}
        self.answers = True
        self.stubborn: set[str] = set()
        self._things = list(things)

    def put(self, *things: dict[str, Any]) -> None:
        """Replace all there is."""
        self._things = list(things)

    def jobs(self, selector: str) -> list[dict[str, Any]]:
        """All jobs that have not been deleted."""
        self._check(selector)
        return [
            thing
            for thing in self._things
            if "template" in thing["spec"] and thing["metadata"]["name"] not in self.deleted
        ]

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """All pods, or those of one job."""
        self._check(selector)
        name = selector.removeprefix("job-name=") if selector.startswith("job-name=") else None
        return [
            thing
            for thing in self._things
            if "template" not in thing["spec"] and name in (None, thing["metadata"]["labels"]["job-name"])
        ]

    def warnings_of(self, name: str) -> list[str]:
        """As set."""
        return self.warnings.get(name, [])

    def delete(self, name: str) -> None:
        """Remember it as deleted."""
        self._check(name)
        if name in self.stubborn:
            raise KubernetesUnavailable("the Kubernetes API answered 409")
        self.deleted.append(name)

    def _check(self, _asked: str) -> None:
        if not self.answers:
            raise KubernetesUnavailable("the Kubernetes API answered 503")
