"""The ways a replica can be laid out over nodes and GPUs, as far as counts go; memory is not weighed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batch_pipelines.hardware.given import Given, node_counts, tensor_problem
from batch_pipelines.hardware.gpus import Gpu, HardwareTable, Node
from batch_pipelines.hardware.memory import Layout
from batch_pipelines.models.checkpoint_facts import CheckpointFacts

__all__ = ["Candidate", "candidates"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a replica.

    Attributes:
        gpu_type: Name of the GPUs' type.
        gpu: The type.
        gpus: GPUs of one node.
        nodes: Nodes.
        layout: How the model is spread over them.
    """

    gpu_type: str
    gpu: Gpu
    gpus: int
    nodes: int
    layout: Layout


def candidates(given: Given, table: HardwareTable, facts: CheckpointFacts | None) -> Iterator[Candidate]:
    """Every way that keeps what is given and the limits of the nodes.

    GPUs are counted in powers of two unless others are asked for, so that nodes divide without a rest. Tensor
    parallelism stays within a node, where GPUs are connected well; pipeline parallelism takes the rest.

    Args:
        given: What the request names.
        table: What there is.
        facts: Of the model, for the sizes its dimensions rule out; None if they are not known surely.
    """
    for name, gpu in table.gpu_types.items():
        if given.gpu_type != name and (given.gpu_type is not None or gpu.only_on_request):
            continue
        if not _within(given, gpu.node):
            continue
        if gpu.slice and (given.nodes or 1) > 1:
            continue
        for gpus in _gpu_counts(given, gpu):
            for nodes in node_counts(given, gpus, [gpu]):
                layout = _layout(given, gpus, nodes, facts)
                if layout is not None:
                    yield Candidate(name, gpu, gpus, nodes, layout)


def _within(given: Given, node: Node) -> bool:
    asked = ((given.cpus, node.cpus), (given.memory, node.memory), (given.storage, node.storage))
    return all(value is None or value <= most for value, most in asked)


def _gpu_counts(given: Given, gpu: Gpu) -> list[int]:
    if given.gpus is not None:
        counts = {given.gpus}
    else:
        tensor, pipeline = given.tensor or 1, given.pipeline or 1
        counts = {2**power for power in range(gpu.gpus_per_node.bit_length())}
        counts |= {gpu.gpus_per_node, tensor, pipeline, tensor * pipeline}
    return sorted(count for count in counts if count <= gpu.gpus_per_node)


def _layout(given: Given, gpus: int, nodes: int, facts: CheckpointFacts | None) -> Layout | None:
    world = gpus * nodes
    if given.tensor is not None:
        tensors = [given.tensor]
    elif given.pipeline is not None:
        tensors = [world // given.pipeline]
    else:
        tensors = list(range(gpus, 0, -1))
    for tensor in tensors:
        if tensor == 0 or world % tensor:
            continue
        layout = Layout(tensor, world // tensor)
        if given.pipeline not in (None, layout.pipeline):
            continue
        if facts is None or (tensor_problem(tensor, facts) is None and layout.pipeline <= facts.layers):
            return layout
    return None
