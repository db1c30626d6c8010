"""What a checkpoint's own files tell about a model: its size, its shape, the longest context.

Read from `config.json` and the sizes of the weights, never from the model's name, which may say anything.
No tensor is opened here; what hardware follows from the facts is in `batch_pipelines.hardware`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batch_pipelines.models.config_fields import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    LAYERS,
    VOCAB,
    CheckpointUnreadable,
    ConfigFields,
)
from batch_pipelines.models.parameter_count import count_parameters, count_vision_parameters
from batch_pipelines.models.stored_weights import bytes_in_folder, quantization_of, read_object, stored_bytes

__all__ = ["CheckpointFacts", "CheckpointUnreadable", "facts_from_config", "read_checkpoint_facts"]

COMPUTE_BYTES: Final = 2
"""Bytes of an activation under `dtype: auto`; the engine casts a 32-bit checkpoint to 16 bits
(vLLM's `_resolve_auto_dtype`)."""

_VISION_KEYS = ("vision_config", "vision_cfg", "vision_tower", "mm_vision_tower", "visual", "img_processor")


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What is known of a model before it is loaded.

    Attributes:
        architectures: The model classes it is for.
        parameters: Parameters in all, those of a vision part included.
        weight_bytes: Bytes of its weights as stored.
        layers: Layers.
        hidden_size: Width of the model.
        attention_heads: Attention heads.
        kv_heads: Heads of keys and values; 1 with latent attention, and every device holds it.
        head_dim: Width of a head in the cache; with latent attention, of the one latent vector.
        dtype_bytes: Bytes of an activation and of a number in the KV cache.
        context: Longest prompt and answer together, in tokens, that the engine derives by itself; None where
            that cannot be told surely.
        vocab_size: Tokens in the vocabulary.
        vision: Whether it takes images.
        quantization: How the weights are quantized, by the engine's name for it.
        latent_attention: Whether keys and values are cached as one latent vector (MLA).
        sliding_layers: Layers that cache the last `sliding_window` tokens only.
        sliding_window: Tokens, where there are such layers.
        stateful_layers: Layers without attention, whose state does not grow with the sequence.
    """

    architectures: tuple[str, ...]
    parameters: int
    weight_bytes: int
    layers: int
    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    dtype_bytes: int
    context: int | None
    vocab_size: int | None
    vision: bool
    quantization: str | None
    latent_attention: bool = False
    sliding_layers: int = 0
    sliding_window: int | None = None
    stateful_layers: int = 0


def read_checkpoint_facts(folder: Path, *, weight_bytes: int | None = None) -> CheckpointFacts:
    """Read the facts of a checkpoint's folder.

    Args:
        folder: Holds its `config.json`.
        weight_bytes: Bytes of its weights as stored, if they are known and may not lie in the folder.

    Raises:
        CheckpointUnreadable: The folder has no `config.json`, or it does not say enough.
    """
    config = read_object(folder / "config.json")
    if config is None:
        raise CheckpointUnreadable(f"{folder} has no config.json")
    stored = weight_bytes or bytes_in_folder(folder)
    try:
        return facts_from_config(config, weight_bytes=stored)
    except CheckpointUnreadable as error:
        raise CheckpointUnreadable(f"{folder / 'config.json'}: {error}") from error


def facts_from_config(config: Mapping[str, Any], *, weight_bytes: int | None) -> CheckpointFacts:
    """Derive the facts from a parsed `config.json`.

    Args:
        config: The configuration.
        weight_bytes: Bytes of the weights as stored; None to estimate them from the model's dimensions.

    Raises:
        CheckpointUnreadable: A key is missing or no number; the text names it.
    """
    fields = ConfigFields.of_language_model(config)
    layers, hidden, heads = (fields.needed(*names) for names in (LAYERS, HIDDEN, HEADS))
    head_dim = fields.number(*HEAD_DIM) or hidden // heads
    kv_heads = fields.kv_heads(heads)
    latent = fields.number("kv_lora_rank")
    quantization, bits = quantization_of(config)
    parameters, estimate = _size(
        config, fields, bits, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )
    weights = weight_bytes or estimate
    sliding, window, stateful = fields.special_layers(layers)
    architectures = config.get("architectures")
    return CheckpointFacts(
        architectures=tuple(map(str, architectures)) if isinstance(architectures, list) else (),
        parameters=round(weights * parameters / estimate),
        weight_bytes=weights,
        layers=layers,
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=1 if latent else kv_heads,
        head_dim=latent + (fields.number("qk_rope_head_dim") or 0) if latent else head_dim,
        dtype_bytes=COMPUTE_BYTES,
        context=fields.context(),
        vocab_size=fields.number(*VOCAB),
        vision=any(config.get(key) for key in _VISION_KEYS),
        quantization=quantization,
        latent_attention=latent is not None,
        sliding_layers=sliding,
        sliding_window=window,
        stateful_layers=stateful,
    )


def _size(
    config: Mapping[str, Any], fields: ConfigFields, bits: float | None, **dimensions: int
) -> tuple[int, int]:
    """Parameters by the model's dimensions, and the bytes they take as stored.

    Quantization leaves embeddings, norms and vision as they were, so that their share is counted apart.
    """
    count = count_parameters(fields, **dimensions)
    other = count.other + count_vision_parameters(config)
    stored = stored_bytes(config, fields.config)
    return count.linear + other, int(count.linear * (stored if bits is None else bits / 8)) + other * stored
