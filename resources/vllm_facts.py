"""What a checkpoint's files tell of a model, against the engine settings of a request.

Which model that is and where its files come from is `resources.vllm_engines`' matter.
"""

from collections.abc import Mapping
from typing import Any, Final

from batch_pipelines.api.errors import FieldError
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines.vllm_args import merged_settings
from batch_pipelines.engines.vllm_values import QUANTIZED_BEFOREHAND
from batch_pipelines.models.checkpoint_facts import (
    CheckpointFacts,
    CheckpointUnreadable,
    read_checkpoint_facts,
)
from batch_pipelines.models.checkpoints import CheckpointPeek

__all__ = ["context_errors", "context_of", "facts_of", "quantization_errors", "takes_images"]

_TEXT_ONLY: Final = frozenset(
    {
        "CohereForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "FalconForCausalLM",
        "GPT2LMHeadModel",
        "GPTNeoXForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "MptForCausalLM",
        "OPTForCausalLM",
        "OlmoForCausalLM",
        "Phi3ForCausalLM",
        "PhiForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "StableLmForCausalLM",
    }
)
"""Architectures that take text alone; of others without a vision configuration that cannot be told."""


def facts_of(peek: CheckpointPeek | None, warnings: list[str] | None = None) -> CheckpointFacts | None:
    """What a checkpoint's files tell; an architecture of its own is left to the engine, with a warning."""
    if peek is None:
        return None
    try:
        return read_checkpoint_facts(peek.folder, weight_bytes=peek.weight_bytes)
    except CheckpointUnreadable as error:
        if warnings is not None:
            warnings.append(f"nothing is known of the model's size, context or vocabulary: {error}")
        return None


def takes_images(facts: CheckpointFacts | None) -> bool | None:
    """Whether the model takes images; None where its configuration does not tell, and the engine will."""
    if facts is None or facts.vision:
        return None if facts is None else True
    return False if _TEXT_ONLY.issuperset(facts.architectures) and facts.architectures else None


def context_of(facts: CheckpointFacts | None, settings: Mapping[str, object]) -> int | None:
    """The model's context, unless the request stretches it."""
    stretched = settings.get("rope_scaling") is not None or settings.get("hf_overrides") is not None
    return None if facts is None or stretched else facts.context


def context_errors(
    config: BatchCompletionsModelConfig, defaults: Mapping[str, Any], facts: CheckpointFacts | None
) -> list[FieldError]:
    """A context longer than the model's."""
    settings = merged_settings(config, defaults)
    longest, context = settings.get("max_model_len"), context_of(facts, settings)
    if not isinstance(longest, int) or context is None or longest <= context:
        return []
    name = "max_context_length" if config.max_model_len is None else "max_model_len"
    why = f"is {longest:,}; the model's context is {context:,} tokens, so ask for no more"
    return [FieldError(f"/model_config/{name}", why)]


def quantization_errors(
    config: BatchCompletionsModelConfig, facts: CheckpointFacts | None
) -> list[FieldError]:
    """A quantization that only a checkpoint made for it can have."""
    named = config.quantization
    if facts is None or facts.quantization is not None or named not in QUANTIZED_BEFOREHAND:
        return []
    why = f"is {named!r}, which needs a checkpoint that is quantized so; this one is not quantized"
    return [FieldError("/model_config/quantization", why)]
