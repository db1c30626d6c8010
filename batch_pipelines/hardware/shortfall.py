"""Why no hardware can be chosen, in words that say what would help."""

from __future__ import annotations

from collections.abc import Sequence

from batch_pipelines.api.errors import FieldError
from batch_pipelines.hardware.given import Given
from batch_pipelines.hardware.layouts import Candidate
from batch_pipelines.hardware.memory import (
    EngineSetup,
    gib,
    loaded_bytes,
    longest_context,
    needed_bytes,
    usable_bytes,
)
from batch_pipelines.models.checkpoint_facts import CheckpointFacts

__all__ = ["no_way", "size_unknown", "too_little_memory"]

_FIELDS = {
    "nodes": "nodes_per_worker",
    "tensor": "tensor_parallel_size",
    "pipeline": "pipeline_parallel_size",
}


def size_unknown(model: str) -> FieldError:
    """Neither a configuration nor the name tells how large the model is.

    Args:
        model: Its name.
    """
    message = (
        f"cannot tell how large {model!r} is: no config.json can be read, and the name states no size; "
        "set gpus or gpu_type"
    )
    return FieldError("/model_config/model", message)


def no_way(given: Given) -> FieldError:
    """Each field is possible, but not all at once.

    Args:
        given: What the request names.
    """
    names = ("gpus", "gpu_type", "cpus", "memory", "storage", *_FIELDS)
    named = ", ".join(_FIELDS.get(name, name) for name in names if getattr(given, name) is not None)
    return FieldError(
        _pointer(given), f"no node and no layout of the model gives all of these at once: {named}"
    )


def too_little_memory(
    given: Given,
    ways: Sequence[Candidate],
    facts: CheckpointFacts,
    setup: EngineSetup,
    instead: Candidate | None,
) -> FieldError:
    """Not even the largest way holds the model.

    Args:
        given: What the request names.
        ways: Those that keep it; at least one.
        facts: Of the model.
        setup: Of the engine.
        instead: What would be chosen if the request named no GPUs.
    """
    way = max(ways, key=lambda way: way.layout.gpus * way.gpu.memory)
    parts = f"its share of {gib(loaded_bytes(facts, setup))} of weights"
    if setup.context:
        parts += f" and the cache of one sequence of {setup.context:,} tokens"
    remedies = []
    if longest := longest_context(facts, setup, way.layout, way.gpu):
        remedies.append(f"set model_config.max_model_len to {longest} or less")
    if instead is not None:
        remedies.append(f"take {instead.layout.gpus} x {instead.gpu_type}")
    if not remedies:
        remedies.append("set nodes_per_worker, or take a quantized checkpoint")
    message = (
        f"{way.layout.gpus} x {way.gpu_type} hold too little: of each, the engine may take "
        f"{gib(usable_bytes(way.gpu, setup))} ({setup.utilization:.0%}), but needs "
        f"{gib(needed_bytes(facts, setup, way.layout))} for {parts}; {', or '.join(remedies)}"
    )
    return FieldError(_pointer(given), message)


def _pointer(given: Given) -> str:
    named = [name for name in ("gpus", "gpu_type") if getattr(given, name) is not None]
    return f"/{named[0]}" if named else "/model_config/model"
