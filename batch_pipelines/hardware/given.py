"""What a request says of its hardware, and whether that contradicts itself, the model or the nodes.

Every contradiction that can be told without weighing memory is found here, all at once. Filling in what a
request leaves open is in `batch_pipelines.hardware.choose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.gpus import Gpu, HardwareTable, Node
from batch_pipelines.hardware.quantities import (
    QuantityInvalid,
    format_bytes,
    format_cpus,
    parse_bytes,
    parse_cpus,
)
from batch_pipelines.models.checkpoint_facts import CheckpointFacts

__all__ = [
    "Given",
    "HardwareInvalid",
    "contradictions",
    "joined",
    "node_counts",
    "node_errors",
    "parallel_errors",
    "tensor_problem",
]

MAX_NODES: Final = 2
"""Most nodes of a replica that are chosen unasked: more are slow to start and fail together, so a request has
to name them."""


class HardwareInvalid(RequestInvalid):
    """What a request says of its hardware cannot be, with every reason found."""


@dataclass(frozen=True, slots=True)
class Given:
    """The hardware a request names; None for what it leaves open. All but the parallel sizes are of one node.

    Attributes:
        cpus: Thousandths of a CPU.
        gpus: GPUs.
        memory: Bytes.
        storage: Bytes of local disk.
        gpu_type: Kind of GPU.
        nodes: Nodes of a replica.
        tensor: GPUs that each layer is spread over.
        pipeline: Groups of them that each hold a range of the layers.
        tensor_field: Where `tensor` comes from, as JSON pointer.
    """

    cpus: int | None
    gpus: int | None
    memory: int | None
    storage: int | None
    gpu_type: str | None
    nodes: int | None
    tensor: int | None
    pipeline: int | None
    tensor_field: str

    @classmethod
    def of(
        cls, request: CreateBatchCompletionsV2Request, defaults: Mapping[str, object]
    ) -> tuple[Given, list[FieldError]]:
        """Read what a request names, and find the quantities that cannot be read.

        Args:
            request: The request.
            defaults: The deployment's engine arguments, for parallel sizes the request leaves unset.
        """
        errors: list[FieldError] = []

        def quantity(name: str, parse: Callable[[str | int | float, str], int]) -> int | None:
            value = getattr(request, name)
            try:
                return None if value is None else parse(value, name)
            except QuantityInvalid as error:
                errors.append(FieldError(f"/{name}", str(error).removeprefix(f"{name} ")))
                return None

        cpus, memory, storage = (
            quantity("cpus", parse_cpus),
            quantity("memory", parse_bytes),
            quantity("storage", parse_bytes),
        )
        config = request.engine_config
        tensor, tensor_field = config.tensor_parallel_size, "tensor_parallel_size"
        if tensor is None and config.num_shards is not None and config.num_shards > 1:
            # Older clients send 1, their default, with every request; it was never obeyed.
            tensor, tensor_field = config.num_shards, "num_shards"
        pipeline = config.pipeline_parallel_size
        given = cls(
            cpus=cpus,
            gpus=request.gpus,
            memory=memory,
            storage=storage,
            gpu_type=request.gpu_type,
            nodes=request.nodes_per_worker,
            tensor=tensor if tensor is not None else _number(defaults, "tensor_parallel_size"),
            pipeline=pipeline if pipeline is not None else _number(defaults, "pipeline_parallel_size"),
            tensor_field=f"/model_config/{tensor_field}",
        )
        return given, errors


def contradictions(given: Given, table: HardwareTable, facts: CheckpointFacts | None) -> list[FieldError]:
    """What a request with GPUs asks that no node and no layout of the model can give.

    Args:
        given: What it names.
        table: What there is.
        facts: Of the model, if they are known surely.
    """
    if given.gpu_type is not None and given.gpu_type not in table.gpu_types:
        return [
            FieldError(
                "/gpu_type", f"this deployment has no {given.gpu_type}; it has {joined(table.gpu_types)}"
            )
        ]
    types: Mapping[str, Gpu] = {
        name: gpu for name, gpu in table.gpu_types.items() if given.gpu_type in (None, name)
    }
    errors = []
    most = max((gpu.gpus_per_node for gpu in types.values()), default=0)
    if given.gpus is not None and given.gpus > most:
        kind = f"a node with {given.gpu_type}" if given.gpu_type else "the largest node"
        instead = "set nodes_per_worker to use several"
        if all(gpu.slice for gpu in types.values()):
            instead = "a replica has one slice of a GPU; set data_parallelism for more replicas"
        message = f"{given.gpus} on one node, but {kind} has {most}; {instead}"
        errors.append(FieldError("/gpus", message))
    if (given.nodes or 1) > 1 and types and all(gpu.slice for gpu in types.values()):
        message = f"{given.nodes} nodes cannot share a model: {joined(types)} is a slice of a GPU"
        errors.append(FieldError("/nodes_per_worker", message))
    errors += node_errors(given, [gpu.node for gpu in types.values()], given.gpu_type or "GPUs")
    if facts is not None:
        errors += parallel_errors(given, facts)
    return errors + _size_errors(given, types.values())


def node_counts(given: Given, gpus: int, types: Iterable[Gpu]) -> list[int]:
    """How many nodes a replica may span: as named, or one, or a few whole ones.

    Args:
        given: What a request names.
        gpus: GPUs of one node.
        types: Those they may be of.
    """
    if given.nodes is not None:
        return [given.nodes]
    whole = any(gpus == gpu.gpus_per_node and not gpu.slice for gpu in types)
    return list(range(1, MAX_NODES + 1)) if whole else [1]


def node_errors(given: Given, nodes: Iterable[Node], kind: str) -> list[FieldError]:
    """What is more than any of these nodes has.

    Args:
        given: What a request names.
        nodes: Those it may run on.
        kind: What they have, for the messages.
    """
    errors = []
    writers: list[tuple[str, Callable[[int], str]]] = [
        ("cpus", format_cpus),
        ("memory", format_bytes),
        ("storage", format_bytes),
    ]
    known = list(nodes)
    for name, write in writers:
        asked = getattr(given, name)
        most = max((getattr(node, name) for node in known), default=0)
        if asked is not None and asked > most:
            message = f"{write(asked)} is more than a node with {kind} has, {write(most)}"
            errors.append(FieldError(f"/{name}", message))
    return errors


def parallel_errors(given: Given, facts: CheckpointFacts) -> list[FieldError]:
    """Parallel sizes that the model's own dimensions rule out."""
    errors = []
    if given.tensor is not None and (problem := tensor_problem(given.tensor, facts)) is not None:
        errors.append(FieldError(given.tensor_field, problem))
    if given.pipeline is not None and given.pipeline > facts.layers:
        message = f"{given.pipeline} groups of layers, but the model has {facts.layers} layers"
        errors.append(FieldError("/model_config/pipeline_parallel_size", message))
    return errors


def tensor_problem(tensor: int, facts: CheckpointFacts) -> str | None:
    """Why layers cannot be spread over so many GPUs, if so: each takes as many heads (vLLM's rule)."""
    if facts.attention_heads % tensor:
        return f"{tensor} does not divide the model's {facts.attention_heads} attention heads"
    if not facts.latent_attention and facts.kv_heads % tensor and tensor % facts.kv_heads:
        return f"{tensor} neither divides nor is a multiple of the model's {facts.kv_heads} key-value heads"
    return None


def joined(names: Iterable[str]) -> str:
    """Names in a row, for a message."""
    return ", ".join(sorted(names)) or "none"


def _size_errors(given: Given, types: Iterable[Gpu]) -> list[FieldError]:
    """Parallel sizes that do not come out at the GPUs that are named."""
    if given.gpus is None:
        return []
    counts = [given.gpus * nodes for nodes in node_counts(given, given.gpus, types)]
    of = f"gpus {given.gpus}" + (f" times nodes_per_worker {given.nodes}" if given.nodes else "")
    if given.tensor is not None and given.pipeline is not None:
        wanted = given.tensor * given.pipeline
        sizes = f"{given.tensor} times pipeline_parallel_size {given.pipeline}"
        message = f"{sizes} needs {wanted} GPUs, but {of} is {counts[0]}"
        return [] if wanted in counts else [FieldError(given.tensor_field, message)]
    pipeline_field = "/model_config/pipeline_parallel_size"
    return [
        FieldError(pointer, f"{size} does not divide the GPUs: {of} is {counts[0]}")
        for size, pointer in ((given.tensor, given.tensor_field), (given.pipeline, pipeline_field))
        if size is not None and all(count % size for count in counts)
    ]


def _number(defaults: Mapping[str, object], name: str) -> int | None:
    value = defaults.get(name)
    return value if isinstance(value, int) else None
