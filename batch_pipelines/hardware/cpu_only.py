"""A replica without GPUs: one node, bounded by what the table says of such a node."""

from __future__ import annotations

from batch_pipelines.api.errors import FieldError
from batch_pipelines.hardware.fill import fill
from batch_pipelines.hardware.given import Given, node_errors, parallel_errors
from batch_pipelines.hardware.gpus import Node
from batch_pipelines.hardware.memory import gib
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.hardware.quantities import format_bytes
from batch_pipelines.models.checkpoint_facts import CheckpointFacts

__all__ = ["cpu_contradictions", "plan_on_cpus"]


def cpu_contradictions(
    given: Given, node: Node, facts: CheckpointFacts | None, loaded: int | None
) -> list[FieldError]:
    """What a request without GPUs asks that cannot be.

    Args:
        given: What it names.
        node: What a node without GPUs has.
        facts: Of the model; None if they are not known surely.
        loaded: Bytes of its weights once they are loaded.
    """
    errors = []
    if given.gpu_type is not None:
        errors.append(FieldError("/gpu_type", f"{given.gpu_type} is named, but gpus is 0"))
    if (given.nodes or 1) > 1:
        message = f"{given.nodes} nodes are asked for, but a replica without GPUs runs on one"
        errors.append(FieldError("/nodes_per_worker", message))
    errors += node_errors(given, [node], "no GPUs")
    if facts is not None:
        errors += parallel_errors(given, facts)
    if loaded is not None and given.memory is None and loaded > node.memory:
        message = f"a node without GPUs has {format_bytes(node.memory)}, but the weights take {gib(loaded)}"
        errors.append(FieldError("/gpus", message))
    if loaded is not None and given.memory is not None and loaded > given.memory:
        message = f"{format_bytes(given.memory)} is too little: the weights alone take {gib(loaded)}"
        errors.append(FieldError("/memory", message))
    return errors


def plan_on_cpus(given: Given, node: Node, facts: CheckpointFacts | None, loaded: int | None) -> Hardware:
    """Fill in what is open.

    Args:
        given: What the request names, without contradictions.
        node: What a node without GPUs has.
        facts: Of the model; None if they are not known surely.
        loaded: Bytes of its weights once they are loaded.
    """
    weights = None if facts is None else facts.weight_bytes
    share = fill(given, node, gpus=0, part=1, host_weights=loaded, weight_bytes=weights)
    return Hardware(
        cpus=share.cpus,
        gpus=0,
        memory=share.memory,
        storage=share.storage,
        gpu_type=None,
        nodes_per_worker=1,
        tensor_parallel_size=given.tensor or 1,
        pipeline_parallel_size=given.pipeline or 1,
        reasons=(
            "gpus 0: " + ("as asked" if given.gpus == 0 else "this deployment has none"),
            *share.reasons,
        ),
    )
