"""CPUs, memory and disk of a replica's nodes, where a request leaves them open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from batch_pipelines.hardware.given import Given
from batch_pipelines.hardware.gpus import Node
from batch_pipelines.hardware.quantities import GIB, format_bytes, format_cpus

__all__ = ["NodeShare", "disk_bytes", "fill"]

CPUS_PER_GPU: Final = 10_000
"""Thousandths of a CPU for each GPU: between vLLM's minimum (two cores, and one for each GPU) and a GPU's
share of the nodes in the table (11 to 24)."""

HOST_BYTES: Final = 16 * GIB
HOST_BYTES_PER_GPU: Final = 8 * GIB
"""Host memory beside the weights, which pass through the page cache: the server and the feeder; and for each
worker its libraries, CUDA context and pinned buffers."""

DISK_BYTES: Final = 50 * GIB
"""Disk beside the weights: image layers, compile caches, logs."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What a replica takes of each of its nodes.

    Attributes:
        cpus: Thousandths of a CPU.
        memory: Bytes.
        storage: Bytes of local disk.
        reasons: Where each comes from.
    """

    cpus: int
    memory: int
    storage: int
    reasons: tuple[str, ...]


def disk_bytes(weight_bytes: int) -> int:
    """Disk a node needs to hold the weights.

    Args:
        weight_bytes: The weights as stored.
    """
    return _whole_gib(DISK_BYTES + weight_bytes)


def fill(
    given: Given,
    node: Node,
    *,
    gpus: int,
    part: float,
    host_weights: int | None,
    weight_bytes: int | None,
) -> NodeShare:
    """Choose what is open; a node's limits bound it.

    Args:
        given: What the request names.
        node: What a node offers.
        gpus: GPUs of one node.
        part: Part of the node that is taken where nothing else tells how much.
        host_weights: Bytes of weights in one node's host memory at once; None if not known.
        weight_bytes: Bytes of all weights as stored; None if not known.
    """
    shares, reasons = {}, []
    beside = HOST_BYTES + gpus * HOST_BYTES_PER_GPU
    memory = None if host_weights is None else _whole_gib(beside + host_weights)
    wanted = {
        "cpus": (gpus * CPUS_PER_GPU or None, node.cpus, f"{CPUS_PER_GPU // 1000} for each GPU"),
        "memory": (memory, node.memory, "the weights, and what the server takes beside them"),
        "storage": (
            None if weight_bytes is None else disk_bytes(weight_bytes),
            node.storage,
            "a copy of the weights, and room for caches",
        ),
    }
    for name, (value, most, why) in wanted.items():
        asked = getattr(given, name)
        write = format_cpus if name == "cpus" else format_bytes
        if asked is not None:
            shares[name], reason = asked, "as asked"
            if value is not None and asked < value and name != "cpus":
                reason += f", though {write(value)} would be {why}"
        elif value is None:
            shares[name], reason = _rounded(name, most * part), f"{part:.0%} of a node"
        elif value > most:
            shares[name], reason = most, f"all that a node has; {write(value)} would be {why}"
        else:
            shares[name], reason = value, why
        reasons.append(f"{name} {write(shares[name])}: {reason}")
    return NodeShare(shares["cpus"], shares["memory"], shares["storage"], tuple(reasons))


def _rounded(name: str, value: float) -> int:
    """A part of a node, in whole CPUs or GiB where there is at least one."""
    unit = 1000 if name == "cpus" else GIB
    return int(value // unit) * unit or int(value)


def _whole_gib(number: int) -> int:
    return math.ceil(number / GIB) * GIB
