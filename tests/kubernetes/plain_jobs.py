"""Plain Jobs of shell scripts for tests of a cluster itself, through the real client."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import kubernetes.client
import kubernetes.config
import pytest

from tests.kubernetes.cluster import Cluster
from tests.support.processes import wait_until

__all__ = ["WAITS_FOR_TERM", "Clients", "clients_of", "needs", "needs_version", "refused", "terminated"]

WAITS_FOR_TERM = "trap 'echo got TERM; exit {code}' TERM; echo up; while :; do sleep 0.05; done"


@contextmanager
def refused() -> Iterator[Callable[[], tuple[int, str, str]]]:
    """Expect a refusal of the API; the value gives its status, reason and message afterwards."""
    with pytest.raises(kubernetes.client.ApiException) as caught:
        yield lambda: _refusal(caught.value)


def _refusal(error: kubernetes.client.ApiException) -> tuple[int, str, str]:
    status = json.loads(error.body)
    return error.status, status["reason"], status["message"]


@dataclass(frozen=True)
class Clients:
    """The real client's APIs for a cluster, and what tests do with them all the time, in plain JSON."""

    cluster: Cluster
    core: Any
    batch: Any
    connection: Any

    @property
    def namespace(self) -> str:
        """The cluster's."""
        return self.cluster.namespace

    def start(self, script: str, *, job: Mapping[str, Any] | None = None, **pod: Any) -> str:
        """Create a Job that runs a script, and return its name.

        Args:
            script: What its container runs.
            job: Fields of the Job's spec.
            pod: Fields of its pods' spec; `container` holds the container's, `labels` the pods' labels.
        """
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.batch.create_namespaced_job(self.namespace, self.manifest(name, script, job=job, **pod))
        return name

    def manifest(
        self, name: str, script: str, *, job: Mapping[str, Any] | None = None, **pod: Any
    ) -> dict[str, Any]:
        """Return a Job's manifest; see `start`."""
        container = {
            "name": "main",
            "image": self.cluster.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            **pod.pop("container", {}),
        }
        labels = pod.pop("labels", None)
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            **pod,
        }
        template = {"metadata": {"labels": labels}, "spec": spec} if labels else {"spec": spec}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, **(job or {}), "template": template},
        }

    def job(self, name: str) -> dict[str, Any]:
        """Return a Job."""
        return self.plain(self.batch.read_namespaced_job_status(name, self.namespace))

    def pods(self, job: str) -> list[dict[str, Any]]:
        """Return a Job's pods."""
        return self.cluster.pods(f"job-name={job}")

    def pod(self, job: str) -> dict[str, Any]:
        """Return a Job's only pod, once it is there."""
        wait_until(lambda: bool(self.pods(job)))
        (pod,) = self.pods(job)
        return pod

    def pod_name(self, job: str) -> str:
        """Return the name of a Job's only pod, once it is there."""
        name: str = self.pod(job)["metadata"]["name"]
        return name

    def log(self, pod: str, **options: Any) -> str:
        """Return a pod's log."""
        answer = self.core.read_namespaced_pod_log(pod, self.namespace, _preload_content=False, **options)
        text: str = answer.data.decode()
        return text

    def wait_for_end(self, job: str, *, within_sec: float = 30) -> tuple[str, str, dict[str, Any]]:
        """Wait until a Job is Complete or Failed; return which, the reason, and its status."""

        def final() -> list[dict[str, Any]]:
            conditions = self.job(job)["status"].get("conditions") or []
            return [one for one in conditions if one["type"] in ("Complete", "Failed")]

        wait_until(lambda: bool(final()), within_sec=within_sec)
        (condition,) = final()
        return condition["type"], condition.get("reason", ""), self.job(job)["status"]

    def wait_for_phase(self, job: str, phase: str) -> str:
        """Wait until a Job's only pod has a phase; return the pod's name."""
        wait_until(lambda: self.pod(job)["status"]["phase"] == phase)
        return self.pod_name(job)

    def wait_until_up(self, job: str) -> str:
        """Wait until a Job's only pod has printed that it is up; return its name."""
        pod = self.wait_for_phase(job, "Running")
        wait_until(lambda: "up" in self.log(pod))
        return pod

    def wait_until_waits(self, job: str, *reasons: str) -> str:
        """Wait until the container of a Job's only pod waits for one of these reasons; return the message."""

        def waiting() -> dict[str, Any]:
            statuses = self.pod(job)["status"].get("containerStatuses") or [{"state": {}}]
            found: dict[str, Any] = statuses[0]["state"].get("waiting") or {}
            return found

        wait_until(lambda: waiting().get("reason") in reasons, within_sec=30)
        return str(waiting().get("message", ""))

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reasons and messages of the events of an object."""
        found = self.core.list_namespaced_event(self.namespace, field_selector=f"involvedObject.name={name}")
        return [(event.reason, event.message) for event in found.items]

    def wait_for_event(self, name: str, reason: str) -> str:
        """Wait until an object has an event; return the newest one's message."""
        wait_until(lambda: any(one == reason for one, _ in self.events(name)))
        return [message for one, message in self.events(name) if one == reason][-1]

    def delete_job(self, name: str, policy: str | None = "Background") -> None:
        """Delete a Job."""
        options = {"propagation_policy": policy} if policy else {}
        self.batch.delete_namespaced_job(name, self.namespace, **options)

    def plain(self, answer: Any) -> dict[str, Any]:
        """Return an object of the client's as JSON."""
        found: dict[str, Any] = self.connection.sanitize_for_serialization(answer)
        return found


def terminated(pod: dict[str, Any]) -> dict[str, Any]:
    """Return how a pod's first container has ended."""
    state: dict[str, Any] = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def needs_version(kube: Clients, least: tuple[int, int], what: str) -> None:
    """Skip a test on a cluster that is older; `what`: what is different there."""
    found = kubernetes.client.VersionApi(kube.connection).get_code()
    version = int(found.major), int(found.minor.rstrip("+"))
    if version < least:
        # Only on a real cluster: the double behaves as a new one, so CI leaves none of these out.
        pytest.skip(f"Kubernetes {version[0]}.{version[1]} is older than {least[0]}.{least[1]}: {what}")


def needs(cluster: Cluster, ability: str) -> None:
    """Skip a test on a cluster that cannot do something, such as inject a fault."""
    if ability not in cluster.can:
        # Only on a real cluster, whose API does not fail on demand: the double can do all of it.
        pytest.skip(f"this cluster cannot do: {ability}")


@contextmanager
def clients_of(cluster: Cluster) -> Iterator[Clients]:
    """The real client, connected to a cluster."""
    with kubernetes.config.new_client_from_config(str(cluster.kubeconfig)) as connection:
        yield Clients(
            cluster,
            kubernetes.client.CoreV1Api(connection),
            kubernetes.client.BatchV1Api(connection),
            connection,
        )
