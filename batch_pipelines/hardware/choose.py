"""Hardware for a request: what it names is kept, what it leaves open is filled in to fit.

Each named field narrows the choice. Among what is left, that with the fewest nodes, then the fewest GPUs,
then the lowest cost is taken, if its GPUs hold the weights and cache for sequences enough. Where the model's
facts are not known, the size in its name serves as a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from batch_pipelines.api.errors import FieldError
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.by_name import guess_facts
from batch_pipelines.hardware.cpu_only import cpu_contradictions, plan_on_cpus
from batch_pipelines.hardware.fill import NodeShare, disk_bytes, fill
from batch_pipelines.hardware.given import Given, HardwareInvalid, contradictions
from batch_pipelines.hardware.gpus import HardwareTable
from batch_pipelines.hardware.layouts import Candidate, candidates
from batch_pipelines.hardware.memory import (
    EngineSetup,
    gib,
    loaded_bytes,
    longest_context,
    needed_bytes,
    usable_bytes,
    useful_bytes,
)
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.hardware.shortfall import no_way, size_unknown, too_little_memory
from batch_pipelines.models.checkpoint_facts import CheckpointFacts

__all__ = ["Hardware", "HardwareInvalid", "infer_hardware"]


def infer_hardware(
    request: CreateBatchCompletionsV2Request,
    facts: CheckpointFacts | None,
    table: HardwareTable,
    *,
    gpus_available: bool,
    engine_defaults: Mapping[str, object] | None = None,
) -> Hardware:
    """Choose the hardware of one replica.

    Args:
        request: What is asked.
        facts: Of the model; None if no configuration could be read.
        table: What there is.
        gpus_available: Whether the deployment has GPUs at all; without them a request that asks for none runs
            on CPUs.
        engine_defaults: The deployment's engine arguments, for what the request leaves unset.

    Raises:
        HardwareInvalid: With every contradiction, each by JSON pointer.
    """
    defaults = engine_defaults or {}
    config = request.engine_config
    given, errors = Given.of(request, defaults)
    names_gpus = given.gpus is not None or given.gpu_type is not None
    if given.gpus == 0 or not (names_gpus or gpus_available):
        loaded = loaded_bytes(facts, EngineSetup.of(config, defaults, facts)) if facts is not None else None
        errors += cpu_contradictions(given, table.cpu_node, facts, loaded)
        if errors:
            raise HardwareInvalid(errors)
        return plan_on_cpus(given, table.cpu_node, facts, loaded)
    if not gpus_available:
        message = "this deployment has no GPUs; leave it out, or set gpus to 0"
        named = [name for name in ("gpus", "gpu_type") if getattr(given, name) is not None]
        errors += [FieldError(f"/{name}", message) for name in named]
    else:
        errors += contradictions(given, table, facts)
    if errors:
        raise HardwareInvalid(errors)
    ways = list(candidates(given, table, facts))
    if not ways:
        raise HardwareInvalid([no_way(given)])
    weighed = facts or guess_facts(config.model)
    if weighed is None and not names_gpus:
        raise HardwareInvalid([size_unknown(config.model)])
    if weighed is not None:
        setup = EngineSetup.of(config, defaults, weighed)
        chosen = _choose(ways, weighed, setup, given)
        if chosen is not None:
            return _weighed_plan(chosen, given, weighed, setup, guessed=facts is None)
        if facts is not None or not names_gpus:
            free = replace(given, gpus=None, gpu_type=None, nodes=None, tensor=None, pipeline=None)
            instead = _choose(list(candidates(free, table, facts)), weighed, setup, free)
            raise HardwareInvalid([too_little_memory(given, ways, weighed, setup, instead)])
    return _unweighed_plan(ways, given)


def _choose(
    ways: Sequence[Candidate], facts: CheckpointFacts, setup: EngineSetup, given: Given
) -> Candidate | None:
    """The leanest way that is worth its price; if there is none, the roomiest that runs at all."""
    useful = [
        way for way in ways if useful_bytes(facts, setup, way.layout, way.gpu) <= usable_bytes(way.gpu, setup)
    ]
    disk = disk_bytes(facts.weight_bytes) if given.storage is None else 0
    with_disk = [way for way in useful if disk <= way.gpu.node.storage]
    if useful:
        return min(with_disk or useful, key=lambda way: (way.nodes, way.layout.gpus, way.gpu.cost))
    running = [way for way in ways if needed_bytes(facts, setup, way.layout) <= usable_bytes(way.gpu, setup)]
    return max(running, key=lambda way: (way.layout.gpus * way.gpu.memory, -way.nodes), default=None)


def _weighed_plan(
    way: Candidate, given: Given, facts: CheckpointFacts, setup: EngineSetup, *, guessed: bool
) -> Hardware:
    loaded, usable = loaded_bytes(facts, setup), usable_bytes(way.gpu, setup)
    wanted = useful_bytes(facts, setup, way.layout, way.gpu)
    if wanted <= usable:
        room = f"{gib(wanted)} of the {gib(usable)} that the engine may take of each are needed"
    else:
        longest = longest_context(facts, setup, way.layout, way.gpu)
        room = f"little room: the cache holds about {longest:,} tokens; more or larger GPUs would be faster"
    source = "by its name alone: a guess" if guessed else "by its configuration"
    part = way.gpus / way.gpu.gpus_per_node
    host_weights = loaded // way.nodes
    share = fill(
        given,
        way.gpu.node,
        gpus=way.gpus,
        part=part,
        host_weights=host_weights,
        weight_bytes=facts.weight_bytes,
    )
    model = f"model: {facts.parameters / 1e9:.2f} billion parameters, {gib(loaded)} loaded, {source}"
    return _hardware(way, share, model, f"{_gpus(way, given)}: {room}")


def _unweighed_plan(ways: Sequence[Candidate], given: Given) -> Hardware:
    """The GPUs that are named, as few and as large as that leaves open."""
    way = min(ways, key=lambda way: (way.nodes, way.layout.gpus, -way.gpu.memory, way.gpu.cost))
    part = way.gpus / way.gpu.gpus_per_node
    share = fill(given, way.gpu.node, gpus=way.gpus, part=part, host_weights=None, weight_bytes=None)
    model = "model: whether it fits is not checked, since no config.json could be read"
    return _hardware(way, share, model, _gpus(way, given))


def _hardware(way: Candidate, share: NodeShare, model: str, gpus: str) -> Hardware:
    return Hardware(
        cpus=share.cpus,
        gpus=way.gpus,
        memory=share.memory,
        storage=share.storage,
        gpu_type=way.gpu_type,
        nodes_per_worker=way.nodes,
        tensor_parallel_size=way.layout.tensor,
        pipeline_parallel_size=way.layout.pipeline,
        reasons=(model, gpus, *share.reasons),
    )


def _gpus(way: Candidate, given: Given) -> str:
    named = [name for name in ("gpus", "gpu_type") if getattr(given, name) is not None]
    asked = f" ({' and '.join(named)} as asked)" if named else ""
    nodes = f" on each of {way.nodes} nodes" if way.nodes > 1 else ""
    return f"gpus {way.gpus} x {way.gpu_type}{nodes}{asked}"
