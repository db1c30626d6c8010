"""Parts of a pod, in the Kubernetes client's words (snake case), as dagster-k8s takes them.

What a job's pods are made of is in `batch_pipelines.kubernetes.pod_config`.
"""

from collections.abc import Mapping
from typing import Any, Final

from batch_pipelines.hardware.quantities import format_bytes, format_cpus
from batch_pipelines.kubernetes.cluster_table import CodeEvaluatorPods, Placement

__all__ = [
    "SHARED_MEMORY",
    "container_security",
    "environment",
    "pod_placement",
    "pod_security",
    "resources_of",
    "shared_memory",
]

SHARED_MEMORY: Final[Mapping[str, Any]] = {"name": "batch-pipelines-shm", "mount_path": "/dev/shm"}  # noqa: S108
"""Where a replica's container finds the volume that `shared_memory` makes."""

_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MIB: Final = 2**20


def resources_of(cpus: int, memory: int, storage: int) -> dict[str, str]:
    """What a pod asks for, and has as its limits too: so it is the last to be evicted, and never slowed down.

    Args:
        cpus: Thousandths of a CPU.
        memory: Bytes.
        storage: Bytes of local disk.
    """
    return {
        "cpu": format_cpus(cpus),
        "memory": format_bytes(memory),
        "ephemeral-storage": format_bytes(storage),
    }


def pod_placement(placement: Placement, lost_node_sec: int) -> dict[str, Any]:
    """Which nodes a pod may run on.

    Args:
        placement: Labels and taints of those nodes.
        lost_node_sec: Seconds the pod stays bound to a node that does not answer.
    """
    labels = placement.node_labels
    spec: dict[str, Any] = {
        "node_selector": {key: values[0] for key, values in labels.items() if len(values) == 1},
        "tolerations": [
            *(toleration.model_dump(exclude_none=True) for toleration in placement.tolerations),
            *(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "toleration_seconds": lost_node_sec,
                }
                for taint in _LOST_NODE_TAINTS
            ),
        ],
    }
    expressions = [
        {"key": key, "operator": "In", "values": list(values)}
        if values
        else {"key": key, "operator": "DoesNotExist"}
        for key, values in labels.items()
        if len(values) != 1
    ]
    if expressions:
        terms = {"node_selector_terms": [{"match_expressions": expressions}]}
        spec["affinity"] = {"node_affinity": {"required_during_scheduling_ignored_during_execution": terms}}
    return spec


def shared_memory(memory: int, share: float) -> dict[str, Any]:
    """The volume of a replica's shared memory.

    Args:
        memory: Bytes the pod may take, these included.
        share: Largest part of them.
    """
    size = max(int(memory * share) // _MIB, 1) * _MIB
    return {
        "name": SHARED_MEMORY["name"],
        "empty_dir": {"medium": "Memory", "size_limit": format_bytes(size)},
    }


def environment(job_label: str) -> list[dict[str, Any]]:
    """Environment variables that tell a step's process which pod it is.

    Args:
        job_label: Label of pods that holds the job's id.
    """
    # Kubernetes' job controller labels pods with the name of their Job.
    fields = {
        "POD_IP": "status.podIP",
        "JOB_NAME": "metadata.labels['job-name']",
        "BATCH_PIPELINES_JOB_ID": f"metadata.labels['{job_label}']",
    }
    return [
        {"name": name, "value_from": {"field_ref": {"field_path": path}}} for name, path in fields.items()
    ]


def pod_security() -> dict[str, Any]:
    """What a pod may do: with the container's, what the pod security standard `restricted` asks for."""
    return {"run_as_non_root": True, "seccomp_profile": {"type": "RuntimeDefault"}}


def container_security(code: CodeEvaluatorPods | None) -> dict[str, Any]:
    """What a container may do.

    Args:
        code: Profiles of containers that run a model's code in a sandbox; None for one that does not.
    """
    security: dict[str, Any] = {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}}
    if code is not None:
        security |= code.model_dump(exclude_none=True)
    return security
