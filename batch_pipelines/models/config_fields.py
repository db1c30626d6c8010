"""Reading a model's `config.json`, whose keys differ from family to family.

One place for the names a dimension goes by, for where a multi-modal configuration hides its language model,
and for the rules by which the engine reads the context and the cache's layers from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

__all__ = ["CheckpointUnreadable", "ConfigFields"]

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "hidden_size_per_head")
VOCAB = ("vocab_size", "padded_vocab_size")
_KV_HEADS = (
    "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups",
    "attn_config.kv_n_heads",
)  # fmt: skip
_CONTEXT = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")
_STATEFUL = ("linear", "mamba", "conv", "recurrent")
_LARGEST_FACTOR: Final = 10_000
_SCALED_ALREADY = ("llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")

# Of language models nested in multi-modal ones files leave defaults out; `transformers` fills in these.
_NESTED_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma3_text": {
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    },
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32_000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32_000, "max_position_embeddings": 131_072,
    },
}  # fmt: skip


class CheckpointUnreadable(ValueError):
    """A checkpoint does not say what is needed; the text names the file or the key."""


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """The configuration of a language model.

    Attributes:
        config: The object that describes it.
        defaults: Numbers for keys it leaves out.
    """

    config: Mapping[str, Any]
    defaults: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_language_model(cls, config: Mapping[str, Any]) -> Self:
        """The language model within any model's configuration."""
        nested = next((found for key in _TEXT_CONFIGS if (found := _object(config, key))), None)
        if nested is None:
            return cls(config)
        inner = cls.of_language_model(nested)
        return cls(inner.config, _NESTED_DEFAULTS.get(inner.model_type, {}))

    @property
    def model_type(self) -> str:
        """The family, as `transformers` names it."""
        return str(self.config.get("model_type"))

    def number(self, *names: str) -> int | None:
        """The first of these keys that is set and not 0; a dot leads into an object.

        Raises:
            CheckpointUnreadable: It is not a whole number above 0.
        """
        for name in names:
            outer, _, inner = name.rpartition(".")
            place = _object(self.config, outer) if outer else self.config
            value = place.get(inner) or self.defaults.get(name)
            if value is None:
                continue
            if type(value) not in (int, float) or not 0 < value < 2**63 or value != int(value):
                raise CheckpointUnreadable(f"{name} is not a whole number above 0")
            return int(value)
        return None

    def needed(self, *names: str) -> int:
        """The same, where nothing works without it.

        Raises:
            CheckpointUnreadable: None of the keys is set, or it is not a whole number above 0.
        """
        value = self.number(*names)
        if value is None:
            raise CheckpointUnreadable(f"{names[0]} is missing")
        return value

    def kv_heads(self, heads: int) -> int:
        """Heads of keys and values, out of `heads` attention heads."""
        # Falcon's first models have one head of keys and values, whatever their other fields say.
        if self.config.get("multi_query") and not self.config.get("new_decoder_architecture"):
            return 1
        return self.number(*_KV_HEADS) or heads

    def special_layers(self, layers: int) -> tuple[int, int | None, int]:
        """Layers that cache a window of the tokens, that window in tokens, and layers that cache none."""
        window = None if self.config.get("use_sliding_window") is False else self.number("sliding_window")
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list) and len(kinds) == layers:
            sliding = kinds.count("sliding_attention") if window else 0
            stateful = sum(any(word in str(kind) for word in _STATEFUL) for kind in kinds)
            return sliding, window if sliding else None, stateful
        # Qwen3-Next, Jamba: one layer in so many has attention, the others a state of fixed size.
        interval = self.number("full_attention_interval", "attn_layer_period")
        if interval:
            return 0, None, layers - max(1, layers // interval)
        if window and self.model_type in ("mistral", "mixtral"):
            return layers, window, 0
        if window and self.model_type in ("gemma2", "gemma3_text"):
            pattern = self.number("sliding_window_pattern") or (2 if self.model_type == "gemma2" else 6)
            return layers - layers // pattern, window, 0
        # Of other models it is not told which layers have a window; that none has is the safe reading.
        return 0, None, 0

    def context(self) -> int | None:
        """Longest prompt and answer together that the engine derives; None where that is not sure.

        The rule is vLLM's (`_get_and_verify_max_len` of 0.32) where no `max_model_len` is given. Without any
        key it would take a default of the model's class, or 2048.
        """
        length = self.number("model_max_length")  # Cohere's; it goes before all others
        if length is None:
            lengths = [value for name in _CONTEXT if (value := self.number(name)) is not None]
            if not lengths:
                return None
            length = min(lengths)
        if "gemma3" in self.model_type:
            return length
        factor: float = 1
        for rope in self._rope_parameters():
            kind = rope.get("rope_type") or rope.get("type")
            if kind in ("longrope", "su"):
                return self.number("original_max_position_embeddings") or length
            scale = rope.get("factor")
            if kind not in _SCALED_ALREADY and isinstance(scale, int | float):
                factor = scale
        return int(length * factor) if 0 < factor < _LARGEST_FACTOR else None

    def _rope_parameters(self) -> list[Mapping[str, Any]]:
        """The parameters of rotary embeddings; several where kinds of layers have their own."""
        rope = _object(self.config, "rope_parameters") or _object(self.config, "rope_scaling")
        return [value for value in rope.values() if isinstance(value, Mapping)] or [rope]


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A nested object, empty if there is none."""
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}
