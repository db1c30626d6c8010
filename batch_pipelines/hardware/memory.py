"""GPU memory that a replica needs: weights, KV cache, and what the engine takes beside them.

All sizes are of one GPU of a replica, in bytes. Two answers are given for each layout: what the engine needs
to start at all, by which a request may be refused, and what it needs to be worth its price, by which hardware
is chosen. Figures of vLLM are those of 0.32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.hardware.gpus import Gpu
from batch_pipelines.hardware.quantities import GIB
from batch_pipelines.models.checkpoint_facts import CheckpointFacts

__all__ = [
    "EngineSetup",
    "Layout",
    "gib",
    "loaded_bytes",
    "longest_context",
    "needed_bytes",
    "usable_bytes",
    "useful_bytes",
]

DEFAULT_UTILIZATION: Final = 0.92
"""vLLM's `gpu_memory_utilization` where none is set."""

USEFUL_SEQUENCES: Final = 32
USEFUL_TOKENS: Final = 1024
"""A batch is worth its GPUs if 32 sequences of 1,024 tokens are in flight: a step of decoding reads all
weights once, for one sequence or for 32. With room to spare the engine takes more by itself."""

RUNTIME_BYTES: Final = GIB
"""CUDA context, library workspaces and NCCL buffers of a worker: 0.5 to 1 GiB as nvidia-smi shows it."""

GRAPH_BYTES: Final = GIB
"""Captured CUDA graphs; vLLM logs 0.5 to 1 GiB for models of 7 to 70 billion parameters."""

_ACTIVATION_WIDTHS: Final = 12
"""Peak activations of a layer, in vectors as wide as the model for each token of a step: hidden state and
residual, the fused gate and up projections (7 to 8 widths in Llama and Qwen), and their product."""

_ONLINE_BITS: Mapping[str, float] = {
    "fp8": 8, "fp8_per_tensor": 8, "fp8_per_block": 8, "fp8_per_channel": 8, "mxfp8": 8.25, "experts_int8": 8,
    "int8_per_channel_weight_only": 8, "nvfp4_per_token": 4.5,
}  # fmt: skip
"""Bits of a weight under the methods of `quantization` that vLLM applies to checkpoints not quantized yet."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a replica spreads its model.

    Attributes:
        tensor: GPUs that each layer is spread over.
        pipeline: Groups of them that each hold a range of the layers.
    """

    tensor: int
    pipeline: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Engine settings that memory depends on; None where the engine's default holds.

    Attributes:
        context: Longest prompt and answer together, in tokens; None if the engine fits it to the memory.
        sequences: Most sequences at once.
        batched_tokens: Most tokens in a step.
        utilization: Fraction of a GPU's memory the engine may take.
        eager: Whether no graphs are captured.
        weight_bits: Bits of a weight if the engine quantizes them itself.
        compute_bytes: Bytes of an activation.
        cache_bytes: Bytes of a number in the KV cache.
    """

    context: int | None
    sequences: int | None
    batched_tokens: int | None
    utilization: float
    eager: bool
    weight_bits: float | None
    compute_bytes: int
    cache_bytes: int

    @classmethod
    def of(
        cls, config: BatchCompletionsModelConfig, defaults: Mapping[str, object], facts: CheckpointFacts
    ) -> EngineSetup:
        """Read the settings of a request, and the deployment's where the request leaves one unset.

        Args:
            config: Of the request; what it sets is kept, `gpu_memory_utilization` above all.
            defaults: Of the deployment, by the same names.
            facts: Of the model.
        """

        def setting(*names: str) -> object:
            given = {name: getattr(config, name, None) for name in names}
            values = (place.get(name) for place in (given, defaults) for name in names)
            return next((value for value in values if value is not None), None)

        def number(*names: str) -> int | None:
            value = setting(*names)
            return value if isinstance(value, int) and value > 0 else None

        asked = setting("max_model_len", "max_context_length")
        utilization = setting("gpu_memory_utilization")
        computed = 4 if setting("dtype") in ("float", "float32") else facts.dtype_bytes
        small_cache = str(setting("cache_dtype") or "auto").startswith("fp8")
        return cls(
            # A negative length has the engine fit it to the memory.
            context=facts.context if asked is None else number("max_model_len", "max_context_length"),
            sequences=number("max_num_seqs"),
            batched_tokens=number("max_num_batched_tokens"),
            utilization=float(utilization) if isinstance(utilization, int | float) else DEFAULT_UTILIZATION,
            eager=setting("enforce_eager") is True,
            weight_bits=None if facts.quantization else _ONLINE_BITS.get(str(setting("quantization"))),
            compute_bytes=computed,
            cache_bytes=1 if small_cache else computed,
        )


def usable_bytes(gpu: Gpu, setup: EngineSetup) -> int:
    """What the engine may take of one GPU."""
    return int(gpu.memory * setup.utilization)


def loaded_bytes(facts: CheckpointFacts, setup: EngineSetup) -> int:
    """Bytes of all weights once they are loaded.

    A quantized checkpoint stays as it is stored; any other is cast to the engine's number type, whatever it
    is stored in. Quantization by the engine leaves embeddings and output matrix alone.
    """
    if facts.quantization is not None:
        return facts.weight_bytes
    if setup.weight_bits is None:
        return facts.parameters * setup.compute_bytes
    kept = min(facts.parameters, 2 * (facts.vocab_size or 0) * facts.hidden_size)
    return kept * setup.compute_bytes + int((facts.parameters - kept) * setup.weight_bits / 8)


def cache_bytes(facts: CheckpointFacts, setup: EngineSetup, layout: Layout, tokens: int) -> int:
    """Bytes that one GPU caches of one sequence.

    Each layer keeps a key and a value for every head of theirs, or one latent vector. Heads are spread over
    the GPUs of a layer; where there are fewer heads than GPUs, each GPU has a copy of one.

    Args:
        facts: Of the model.
        setup: Of the engine.
        layout: Of the replica.
        tokens: Length of the sequence.
    """
    in_window = min(tokens, facts.sliding_window or tokens)
    full_layers = facts.layers - facts.sliding_layers - facts.stateful_layers
    cached_tokens = full_layers * tokens + facts.sliding_layers * in_window
    heads = max(1, math.ceil(facts.kv_heads / layout.tensor))
    vectors = 1 if facts.latent_attention else 2 * heads
    return math.ceil(cached_tokens * vectors * facts.head_dim * setup.cache_bytes / layout.pipeline)


def needed_bytes(facts: CheckpointFacts, setup: EngineSetup, layout: Layout) -> int:
    """What one GPU must have at least: its share of the weights, and the cache of one longest sequence.

    Without the latter vLLM refuses to start. What it takes beside these is left out, so that no request is
    refused that would run.
    """
    one = cache_bytes(facts, setup, layout, setup.context) if setup.context else 0
    return _weights_of_one(facts, setup, layout) + one


def useful_bytes(facts: CheckpointFacts, setup: EngineSetup, layout: Layout, gpu: Gpu) -> int:
    """What one GPU should have: weights, cache for sequences enough, activations, graphs and the runtime."""
    length = min(setup.context or USEFUL_TOKENS, USEFUL_TOKENS)
    count = min(setup.sequences or USEFUL_SEQUENCES, USEFUL_SEQUENCES)
    cache = max(
        cache_bytes(facts, setup, layout, setup.context) if setup.context else 0,
        count * cache_bytes(facts, setup, layout, length),
    )
    graphs = 0 if setup.eager else GRAPH_BYTES
    return (
        _weights_of_one(facts, setup, layout)
        + cache
        + _activations(facts, setup, gpu)
        + graphs
        + RUNTIME_BYTES
    )


def longest_context(facts: CheckpointFacts, setup: EngineSetup, layout: Layout, gpu: Gpu) -> int:
    """Longest sequence, in tokens, whose cache fits beside the weights; 0 if not even they fit."""
    room = usable_bytes(gpu, setup) - _weights_of_one(facts, setup, layout)
    low, high = 0, max(setup.context or 0, 2**20)
    while low < high:
        middle = (low + high + 1) // 2
        if cache_bytes(facts, setup, layout, middle) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _weights_of_one(facts: CheckpointFacts, setup: EngineSetup, layout: Layout) -> int:
    return math.ceil(loaded_bytes(facts, setup) / layout.gpus)


def _activations(facts: CheckpointFacts, setup: EngineSetup, gpu: Gpu) -> int:
    """Peak of a step: activations of the widest layer, and the logits of every sequence in 32 bits, twice.

    vLLM measures both at its start with the most tokens and sequences it would take: 8192 and 1024 on large
    GPUs, 2048 and 256 on others (`EngineArgs.get_batch_defaults` for the API server).
    """
    tokens = setup.batched_tokens or (8192 if gpu.large_batches else 2048)
    sequences = setup.sequences or (1024 if gpu.large_batches else 256)
    logits = 2 * 4 * sequences * (facts.vocab_size or 0)
    return tokens * facts.hidden_size * _ACTIVATION_WIDTHS * setup.compute_bytes + logits


def gib(number: int) -> str:
    """An amount of memory for people, such as `15.0 GiB`.

    Args:
        number: Bytes.
    """
    return f"{number / GIB:.1f} GiB"
