"""How many parameters a model has, by the dimensions in its configuration.

Needed where the weights cannot be measured (a name on the hub, a bucket that is not listed), and to tell the
quantized part of a checkpoint from the rest. Norms are counted, biases are not: they are below 0.1 %. Layers
that are not attention (Mamba, linear attention) count as if they were, which is close enough to plan by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batch_pipelines.models.config_fields import VOCAB, ConfigFields

__all__ = ["ParameterCount", "count_parameters", "count_vision_parameters"]

# Families whose MLP has two matrices; that of all others has a gate, which makes three.
_NOT_GATED = frozenset(
    {
        "bloom",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "opt",
        "phi",
        "starcoder2",
    }
)
# Families that use the embeddings as output matrix too, unless the configuration says otherwise.
_TIED = frozenset(
    {"bloom", "cohere", "cohere2", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "mpt",
     "opt"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters, by how quantization treats them.

    Attributes:
        linear: In the layers' matrices, which a quantized checkpoint stores in few bits.
        other: In embeddings, the output matrix, norms, routers and vision: stored as they were trained.
    """

    linear: int
    other: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.linear + self.other


def count_parameters(
    fields: ConfigFields, *, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int
) -> ParameterCount:
    """Count the parameters of a decoder.

    Args:
        fields: The configuration of the language model.
        layers: Layers.
        hidden: Width of the model.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        head_dim: Width of a head.
    """
    dense, experts, router = _mlp(fields, hidden)
    sparse = _sparse_layers(fields, layers) if experts else 0
    attention = _attention(fields, hidden, heads, kv_heads, head_dim)
    tied = fields.config.get("tie_word_embeddings")
    if tied is None:
        tied = fields.model_type in _TIED
    embeddings = (fields.number(*VOCAB) or 0) * hidden * (1 if tied else 2)
    norms = (2 * layers + 1) * hidden
    return ParameterCount(
        linear=layers * attention + (layers - sparse) * dense + sparse * experts,
        other=embeddings + norms + sparse * router,
    )


def count_vision_parameters(config: Mapping[str, Any]) -> int:
    """Roughly count those of a vision transformer: four attention matrices and two of an MLP in each layer.

    Args:
        config: The whole configuration; 0 if it describes no vision part.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return 0
    fields = ConfigFields(vision)
    hidden = fields.number("hidden_size", "embed_dim", "width")
    layers = fields.number("num_hidden_layers", "depth")
    if hidden is None or layers is None:
        return 0
    return layers * (4 * hidden**2 + 2 * hidden * (fields.number("intermediate_size") or 4 * hidden))


def _attention(fields: ConfigFields, hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    latent = fields.number("kv_lora_rank")
    if latent is None:
        return 2 * hidden * head_dim * (heads + kv_heads)
    nope, rope = fields.number("qk_nope_head_dim") or 0, fields.number("qk_rope_head_dim") or 0
    value = fields.number("v_head_dim") or head_dim
    rank = fields.number("q_lora_rank")
    queries = heads * (nope + rope) * (rank or hidden) + (hidden * rank if rank else 0)
    return queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden


def _mlp(fields: ConfigFields, hidden: int) -> tuple[int, int, int]:
    """Parameters of a dense MLP, of all experts of a layer together, and of their router."""
    matrices = 2 if fields.model_type in _NOT_GATED else 3
    width = fields.number(
        "intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "ffn_config.ffn_hidden_size"
    )
    width = width or 4 * hidden
    dense = matrices * hidden * (fields.number("intermediate_size_mlp") or width)  # Llama 4's name for it
    experts = fields.number(
        "num_local_experts",
        "n_routed_experts",
        "num_experts",
        "moe_num_experts",
        "ffn_config.moe_num_experts",
    )
    if experts is None or experts == 1:
        return dense, 0, 0
    expert = fields.number("moe_intermediate_size") or width
    shared = fields.number("shared_expert_intermediate_size") or (
        (fields.number("n_shared_experts") or 0) * expert
    )
    if fields.model_type == "llama4_text":
        shared = width
    return dense, 3 * hidden * (experts * expert + shared), hidden * experts


def _sparse_layers(fields: ConfigFields, layers: int) -> int:
    """Layers with experts in place of a dense MLP."""
    dense = fields.config.get("mlp_only_layers")
    first = (fields.number("first_k_dense_replace") or 0) + (len(dense) if isinstance(dense, list) else 0)
    step = fields.number("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step") or 1
    return max(0, layers - first) // step
