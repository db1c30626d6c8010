"""The nodes of a double when nothing else is asked for: a CPU node, three of 8 GPUs, one of MIG devices."""

from __future__ import annotations

from collections.abc import Mapping

from tests.kubernetes.double.nodes import Node

__all__ = ["DEFAULT_NODES", "GPU_TAINT", "cpu_node", "gpu_node", "mig_node"]

GPU_TAINT: Mapping[str, str] = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
_ROOM = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "2Ti"}
_H100 = "NVIDIA-H100-80GB-HBM3"


def cpu_node(name: str = "cpu-0", **allocatable: str) -> Node:
    """Return a node without GPUs and with plenty of the rest, such as `cpu="4"` where that is not wanted."""
    return Node(name, {**_ROOM, **allocatable})


def gpu_node(name: str, *, gpus: int = 8, product: str = _H100, **labels: str) -> Node:
    """Return a node that takes only pods that tolerate its GPUs."""
    return Node(
        name,
        {**_ROOM, "nvidia.com/gpu": str(gpus)},
        labels={
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.product": product,
            **labels,
        },
        taints=(GPU_TAINT,),
    )


def mig_node(name: str = "mig-0", *, devices: Mapping[str, int] | None = None, product: str = _H100) -> Node:
    """Return a node whose GPUs are split; `devices` counts the parts by profile, such as `1g.20gb`."""
    counts = devices or {"1g.20gb": 16, "3g.40gb": 8}
    return Node(
        name,
        {**_ROOM, **{f"nvidia.com/mig-{profile}": str(count) for profile, count in counts.items()}},
        labels={
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product,
            "nvidia.com/mig.strategy": "mixed",
        },
        taints=(GPU_TAINT,),
    )


DEFAULT_NODES = (cpu_node(), gpu_node("gpu-0"), gpu_node("gpu-1"), gpu_node("gpu-2"), mig_node())
