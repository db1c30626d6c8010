"""From a request and its hardware to the pods that do its work: `per_step_k8s_config`, in Dagster's words.

Pure functions: no cluster is asked and nothing is started. How a cluster names its GPUs and nodes is in
`batch_pipelines.kubernetes.cluster_table`; what parts of a pod look like, in `pod_parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from batch_pipelines.api.errors import FieldError
from batch_pipelines.api.priorities import priority_class
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.given import HardwareInvalid
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.kubernetes.cluster_table import ClusterTable, Placement
from batch_pipelines.kubernetes.pod_parts import (
    SHARED_MEMORY,
    container_security,
    environment,
    pod_placement,
    pod_security,
    resources_of,
    shared_memory,
)
from batch_pipelines.run_config import INFERENCE_OP

__all__ = [
    "COMPONENT_LABEL",
    "EVERY_STEP",
    "JOB_LABEL",
    "MODEL_ANNOTATION",
    "NODES_LABEL",
    "REQUEST_LABEL_PREFIX",
    "STEP_LABEL",
    "PodSettings",
    "pods_of",
    "pods_without_request",
]

JOB_LABEL: Final = "batch-pipelines/job-id"
STEP_LABEL: Final = "batch-pipelines/step"
COMPONENT_LABEL: Final = "batch-pipelines/component"
NODES_LABEL: Final = "batch-pipelines/nodes"
"""Pods that are to reach each other; network policies go by it."""
REQUEST_LABEL_PREFIX: Final = "label.batch-pipelines/"
MODEL_ANNOTATION: Final = "batch-pipelines/model"
"""An annotation: names of models have characters that labels have not."""

EVERY_STEP: Final[dict[str, Any]] = {
    "container_config": {"resources": {}},
    "pod_spec_config": {
        "node_selector": {},
        "node_name": None,
        "affinity": {},
        "tolerations": [],
        "topology_spread_constraints": [],
        "priority_class_name": None,
        "runtime_class_name": None,
        "active_deadline_seconds": None,
    },
    "merge_behavior": "SHALLOW",
}
"""The executor's `step_k8s_config`, which goes beside `per_step_k8s_config`.

Dagster gives step pods what an operator set for run workers: environment, volumes, labels and account, as it
must, but node selectors, tolerations and resources too. Where the ops' own entries are merged these cannot be
taken away, since dictionaries only grow there. So this replaces them with nothing first."""

_COMMAND_OF_GROUPS: Final = ("python", "-m", "batch_pipelines.kubernetes.node")
_LEFT_ALONE: Final = {
    # Whoever frees nodes would have to start the model anew elsewhere, and what is in flight is lost.
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_REPLICA_GRACE_SEC: Final = 60
"""The engine has 10 s to end by itself and is surely gone 8 s later; then progress and Dagster's last event
are written, to stores that may be slow. Spot nodes may give less: 30 s on Google Cloud, 120 s on AWS."""
_SMALL_GRACE_SEC: Final = 30
_MODEL_CHARACTERS: Final = 250
_UNREAD_DEADLINE_SEC: Final = 3600

_SmallOp = Literal["validate_request", "shard_inputs", "merge_outputs"]
_CODE_OPS: Final = ("validate_request", INFERENCE_OP)
"""The steps that set a sandbox up when a request has a tool: the first tries whether it can be had."""


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What a deployment decides for its pods.

    Attributes:
        table: How its cluster names GPUs and nodes.
        replica_image: Image of pods with engines; None for the image of all other steps.
        service_account: Of all step pods; None for the one of the run workers.
        priority_classes: PriorityClass by the names a request's `priority` may have.
        pod_labels: Labels of requests that pods carry under their own names.
        kueue_queue: Kueue's local queue for pods with engines; None without Kueue.
        ttl_sec: Seconds that a Job which has ended is kept.
    """

    table: ClusterTable
    replica_image: str | None = None
    service_account: str | None = None
    priority_classes: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Sequence[str] = ()
    kueue_queue: str | None = None
    ttl_sec: int = 3600


def pods_of(
    request: CreateBatchCompletionsV2Request,
    hardware: Hardware,
    settings: PodSettings,
    *,
    job_id: str,
    deadline_sec: int,
) -> dict[str, dict[str, Any]]:
    """The executor's `per_step_k8s_config`: by op, what its pods are. It needs `EVERY_STEP` beside it.

    Args:
        request: The job's request.
        hardware: Of one replica.
        settings: Of the deployment.
        job_id: The job's id.
        deadline_sec: Seconds from its start after which Kubernetes ends a step's pods; at least 1.

    Raises:
        HardwareInvalid: The cluster has no such GPUs.
    """
    whole = _Whole(request, settings, job_id, max(deadline_sec, 1))
    small = {op: _small_step(whole, op) for op in get_args(_SmallOp)}
    return {**small, INFERENCE_OP: _replica(whole, hardware)}


def pods_without_request(settings: PodSettings) -> dict[str, dict[str, Any]]:
    """As `pods_of`, for a run whose request cannot be read: its first step, also the last, says why.

    Args:
        settings: Of the deployment.
    """
    whole = _Whole(None, settings, None, _UNREAD_DEADLINE_SEC)
    return {op: _small_step(whole, op) for op in get_args(_SmallOp)}


@dataclass(frozen=True, slots=True)
class _Whole:
    """What all pods of a job share."""

    request: CreateBatchCompletionsV2Request | None
    settings: PodSettings
    job_id: str | None
    deadline_sec: int

    def entry(
        self,
        op: str,
        component: str,
        placement: Placement,
        resources: Mapping[str, str],
        *,
        grace_sec: int,
        annotations: Mapping[str, str],
    ) -> dict[str, Any]:
        """A step's entry."""
        request, settings, table = self.request, self.settings, self.settings.table
        labels = self._labels(op, component)
        runs_code = request is not None and request.tool_config is not None and op in _CODE_OPS
        spec: dict[str, Any] = {
            **pod_placement(placement, table.lost_node_sec),
            "restart_policy": "Never",
            "automount_service_account_token": False,
            "security_context": pod_security(),
            "termination_grace_period_seconds": grace_sec,
        }
        if settings.service_account is not None:
            spec["service_account_name"] = settings.service_account
        name = priority_class(request.priority if request else None, settings.priority_classes)
        if name is not None:
            spec["priority_class_name"] = name
        model = {MODEL_ANNOTATION: request.engine_config.model[:_MODEL_CHARACTERS]} if request else {}
        return {
            "container_config": {
                "resources": {"limits": dict(resources), "requests": dict(resources)},
                "env": environment(JOB_LABEL),
                "security_context": container_security(table.code_evaluator if runs_code else None),
            },
            "pod_spec_config": spec,
            "pod_template_spec_metadata": {"labels": labels, "annotations": {**annotations, **model}},
            "job_metadata": {"labels": dict(labels), "annotations": model},
            "job_spec_config": {
                # A second pod of a step finds that the step was started already and exits 0, and the step
                # hangs. Another attempt is Dagster's to make, by a Job of its own.
                "backoff_limit": 0,
                "active_deadline_seconds": self.deadline_sec,
                "ttl_seconds_after_finished": settings.ttl_sec,
            },
            "merge_behavior": "DEEP",
        }

    def _labels(self, op: str, component: str) -> dict[str, str]:
        given = self.request.labels if self.request else {}
        return {
            **{name: given[name] for name in self.settings.pod_labels if name in given},
            **{f"{REQUEST_LABEL_PREFIX}{name}": value for name, value in given.items()},
            **({JOB_LABEL: self.job_id} if self.job_id else {}),
            STEP_LABEL: op,
            COMPONENT_LABEL: component,
        }


def _small_step(whole: _Whole, op: _SmallOp) -> dict[str, Any]:
    step = getattr(whole.settings.table.small_steps, op)
    resources = resources_of(step.cpus, step.memory, step.storage)
    return whole.entry(op, "small-step", step, resources, grace_sec=_SMALL_GRACE_SEC, annotations={})


def _replica(whole: _Whole, hardware: Hardware) -> dict[str, Any]:
    settings, table = whole.settings, whole.settings.table
    several = hardware.nodes_per_worker > 1
    resources = resources_of(hardware.cpus, hardware.memory, hardware.storage)
    placement, runtime_class = table.cpu_node, None
    if hardware.gpus:
        nodes = next((nodes for name, nodes in table.gpu_types.items() if name == hardware.gpu_type), None)
        if nodes is None:
            raise HardwareInvalid([FieldError("/gpu_type", f"this cluster has no {hardware.gpu_type}")])
        placement, runtime_class = nodes, nodes.runtime_class
        resources |= {nodes.resource: str(hardware.gpus)} | (nodes.multi_node_resources if several else {})
    entry = whole.entry(
        INFERENCE_OP, "replica", placement, resources, grace_sec=_REPLICA_GRACE_SEC, annotations=_LEFT_ALONE
    )
    container, spec, job = entry["container_config"], entry["pod_spec_config"], entry["job_spec_config"]
    container["volume_mounts"] = [SHARED_MEMORY]
    spec["volumes"] = [shared_memory(hardware.memory, table.shm_share)]
    if settings.replica_image is not None:
        container["image"] = settings.replica_image
    if runtime_class is not None:
        spec["runtime_class_name"] = runtime_class
    if settings.kueue_queue is not None:
        # Kueue's webhook suspends a Job with this label and lets it go when there is room; it needs nothing
        # else (kueue.sigs.k8s.io/docs/tasks/run/jobs).
        entry["job_metadata"]["labels"][_QUEUE_LABEL] = settings.kueue_queue
    if several:
        for metadata in (entry["job_metadata"], entry["pod_template_spec_metadata"]):
            metadata["labels"] = {**metadata["labels"], NODES_LABEL: "several"}
        # All pods of a group run this program before Dagster's own, to which only the first goes on. That
        # none is retried makes one pod's failure the end of all.
        container["command"] = list(_COMMAND_OF_GROUPS)
        job |= {
            "completion_mode": "Indexed",
            "completions": hardware.nodes_per_worker,
            "parallelism": hardware.nodes_per_worker,
        }
    return entry
