"""What a scenario may ask of a cluster, be it the double or a real one, and the faults it may inject.

Here are the protocol and plain values only. How a cluster does it is not known here; whatever the Kubernetes
API itself offers (delete a pod, the eviction subresource, logs) is not repeated here: use the real client.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = [
    "ApiError",
    "Cluster",
    "ContainerCreationFailure",
    "DroppedConnection",
    "Fault",
    "HttpFault",
    "ImagePullFailure",
    "LostAnswer",
    "PodFault",
    "SlowApi",
    "Unschedulable",
    "Unsupported",
]


class Unsupported(Exception):
    """This cluster cannot do that."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Pods of a label selector get no node, until the fault is cleared.

    Attributes:
        selector: Label selector in kubectl's form, such as `batch-pipelines/step=run_inference`; empty: all.
        times: How many pods are held up, the first ones that come; None for all of them.
    """

    selector: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class ImagePullFailure:
    """Images of pods of a label selector cannot be pulled, until the fault is cleared."""

    selector: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerCreationFailure:
    """Containers of pods of a label selector cannot be created, until the fault is cleared."""

    selector: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class ApiError:
    """The API answers matching requests with an error and does nothing.

    Attributes:
        status: HTTP status, such as 429, 500 or 503.
        verb: HTTP method, such as POST; empty: any.
        path: Regular expression searched in the path (without the query).
        body: Regular expression searched in the request's body, such as a Job's name.
        times: How many requests are hit; None for all.
        retry_after_sec: Value of a Retry-After header; None for none. With it, the client's transport
            silently repeats a request that can be repeated.
    """

    status: int
    verb: str = ""
    path: str = ""
    body: str = ""
    times: int | None = 1
    retry_after_sec: int | None = None


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """The API does what matching requests ask, then the connection ends without an answer."""

    verb: str = ""
    path: str = ""
    body: str = ""
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class DroppedConnection:
    """The connection of matching requests ends without an answer, and nothing is done."""

    verb: str = ""
    path: str = ""
    body: str = ""
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class SlowApi:
    """Matching requests are worked on `delay_sec` later."""

    delay_sec: float
    verb: str = ""
    path: str = ""
    body: str = ""
    times: int | None = None


PodFault = Unschedulable | ImagePullFailure | ContainerCreationFailure
HttpFault = ApiError | LostAnswer | DroppedConnection | SlowApi
Fault = PodFault | HttpFault


class Cluster(Protocol):
    """A cluster that scenarios run on. Objects are plain JSON as the API gives it (camelCase).

    Names in `can`: evict, oom, kill-process, kill-run-worker, node-loss, unschedulable, image-pull,
    container-creation, api-errors, slow-api; and indexed-jobs, which old
    clusters lack. A method whose fault is not in `can` raises `Unsupported`.
    """

    @property
    def kubeconfig(self) -> Path:
        """A file that the kubernetes client, dagster-k8s and kubectl load."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace of the tests."""
        ...

    @property
    def image(self) -> str:
        """Image that runs this project's code (dagster, python)."""
        ...

    @property
    def replica_image(self) -> str:
        """Image of the pods that run an engine."""
        ...

    @property
    def can(self) -> frozenset[str]:
        """Faults that it can inject."""
        ...

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """Pods of the namespace."""
        ...

    def jobs(self, selector: str = "") -> list[dict[str, Any]]:
        """Jobs of the namespace."""
        ...

    def live_pods(self, selector: str = "") -> list[str]:
        """Names of pods that neither succeeded nor failed, or that are being deleted."""
        ...

    def evict(self, pod: str) -> None:
        """Have the kubelet evict it: phase Failed, reason Evicted, its processes killed."""
        ...

    def oom_kill(self, pod: str) -> None:
        """Have the kernel kill its container for memory: reason OOMKilled, exit code 137."""
        ...

    def kill_process(self, pod: str) -> None:
        """Kill its container's main process with SIGKILL: reason Error, exit code 137."""
        ...

    def lose_node_of(self, pod: str) -> None:
        """Take its node away: NotReady, and its pods are lost as in a real cluster."""
        ...

    def add_fault(self, fault: Fault) -> None:
        """Let a fault stand until it has struck `times` times or is cleared."""
        ...

    def clear_faults(self) -> None:
        """End all standing faults; lost nodes come back, empty."""
        ...
