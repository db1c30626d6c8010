"""The few calls to Kubernetes that this project makes itself; all others are dagster-k8s' own.

The client is imported when it is first used: it takes a second, and the pods of steps, which load the same
definitions, never ask.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from kubernetes import client

__all__ = ["JobsApi", "Json", "KubernetesUnavailable", "RunJobs"]

Json = dict[str, Any]
"""An object as the API gives it."""

_TIMEOUT_SEC = 30


class KubernetesUnavailable(Exception):
    """The cluster's API did not answer, or refused."""


class JobsApi(Protocol):
    """What is asked of a cluster about the Kubernetes jobs of Dagster runs."""

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


class RunJobs:
    """The Kubernetes jobs of Dagster runs in one namespace, and their pods, as plain JSON.

    The client's configuration must be loaded: dagster-k8s does so when its launcher or executor is made.
    """

    def __init__(self, namespace: str) -> None:
        from kubernetes import client

        self._refused = client.ApiException
        self._namespace = namespace
        self._batch = client.BatchV1Api()
        self._core = client.CoreV1Api()

    def jobs(self, selector: str) -> list[Json]:
        """The jobs with these labels.

        Raises:
            KubernetesUnavailable: It cannot be told now.
        """
        return self._items(self._batch.list_namespaced_job, label_selector=selector)

    def pods(self, selector: str) -> list[Json]:
        """The pods with these labels.

        Raises:
            KubernetesUnavailable: It cannot be told now.
        """
        return self._items(self._core.list_namespaced_pod, label_selector=selector)

    def warnings_of(self, name: str) -> list[str]:
        """What the cluster complains of about an object, the newest last.

        Raises:
            KubernetesUnavailable: It cannot be told now.
        """
        events = self._items(
            self._core.list_namespaced_event, field_selector=f"involvedObject.name={name},type=Warning"
        )
        return [str(event.get("message") or event.get("reason") or "") for event in events]

    def delete(self, name: str) -> None:
        """Delete a job, and its pods by their grace period; one that is gone already is fine.

        Raises:
            KubernetesUnavailable: It cannot be done now.
        """
        try:
            self._batch.delete_namespaced_job(
                name, self._namespace, propagation_policy="Background", _request_timeout=_TIMEOUT_SEC
            )
        except self._refused as error:
            if error.status != 404:
                raise KubernetesUnavailable(_said(error)) from error
        except HTTPError as error:
            raise KubernetesUnavailable(str(error)) from error

    def _items(self, call: Callable[..., Any], **selection: str) -> list[Json]:
        try:
            answer = call(self._namespace, **selection, _preload_content=False, _request_timeout=_TIMEOUT_SEC)
            items: list[Json] = json.loads(answer.data)["items"]
        except self._refused as error:
            raise KubernetesUnavailable(_said(error)) from error
        except HTTPError as error:
            raise KubernetesUnavailable(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise KubernetesUnavailable(f"the Kubernetes API answered what is no list: {error!r}") from error
        return items


def _said(error: "client.ApiException") -> str:
    return f"the Kubernetes API answered {error.status} {error.reason}"
