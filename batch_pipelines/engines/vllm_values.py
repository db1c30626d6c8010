"""Values that vLLM 0.32 takes for the settings of a request, so that others are refused before it starts.

The lists repeat vLLM's own, because importing it takes many seconds and a step without a GPU may not have it;
a test asks the installed vLLM whether they still agree. What depends on the checkpoint is not checked here.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["CHOICES", "QUANTIZED_BEFOREHAND", "TOOL_PARSERS", "value_errors"]


def _words(text: str) -> list[str]:
    return text.split()


TOOL_PARSERS: Final = _words(
    "apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 "
    "deepseek_v41 dots ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc "
    "granite4 hermes hf hunyuan_a13b hy_v3 hy_v4 inkling internlm jamba k2_horizon kimi_k2 "
    "kimi_k3 lfm2 ling3 llama3_json llama4_json llama4_pythonic longcat mimo minicpm5 minimax_m2 "
    "minimax_m3 mistral muse_glimmer olmo3 openai phi4_mini_json plamo3 poolside_v1 pythonic "
    "qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 xlam"
)
CHOICES: Final[Mapping[str, list[str]]] = {
    "dtype": ["auto", "bfloat16", "float", "float16", "float32", "half"],
    "cache_dtype": _words(
        "auto bfloat16 float16 fp8 fp8_ds_mla fp8_e4m3 fp8_e5m2 fp8_inc fp8_per_token_head "
        "int4_per_token_head int8_per_token_head nvfp4 nvfp4_4over6 nvfp4_ds_mla turboquant_3bit_nc "
        "turboquant_4bit_nc turboquant_k3v4_nc turboquant_k8v4 ultraquant_4bit"
    ),
    "quantization": _words(
        "awq auto_awq fp8 fbgemm_fp8 fp_quant modelopt modelopt_fp4 modelopt_mxfp8 modelopt_mixed "
        "auto_gptq gptq gptq_marlin awq_marlin humming compressed-tensors experts_int8 quark "
        "moe_wna16 torchao inc mxfp4 gpt_oss_mxfp4 deepseek_v4_fp8 online fp8_per_tensor "
        "fp8_per_block fp8_per_channel int8_per_channel_weight_only nvfp4_per_token mxfp8"
    ),
    "load_format": _words(
        "auto hf dummy fastsafetensors instanttensor ipc_cache mistral modelexpress npcache pt "
        "runai_streamer runai_streamer_sharded safetensors sharded_state tensorizer"
    ),
    "config_format": ["auto", "hf", "mistral"],
    "tokenizer_mode": _words(
        "auto hf slow mistral cohere deepseek_v32 deepseek_v4 deepseek_v41 inkling kimi_audio kimi_k3"
    ),
    "tool_call_parser": TOOL_PARSERS,
}
QUANTIZED_BEFOREHAND: Final = frozenset(
    _words("awq auto_awq awq_marlin gptq auto_gptq gptq_marlin compressed-tensors quark fbgemm_fp8")
)
"""Of the quantizations, those that only a checkpoint which was stored so can have."""
_BOUNDS: Final = {
    "max_model_len": (-1, 2**31 - 1),  # -1: as much as fits the memory
    "num_gpu_blocks_override": (1, 2**31 - 1),
    "seed": (0, 2**32 - 1),  # NumPy takes no other
}


def value_errors(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    """Settings that vLLM would refuse when it starts.

    Args:
        settings: By their name in `model_config`, aliases resolved; null counts as unset.

    Returns:
        Each such setting's name, and what is wrong with it.
    """
    known = {name: value for name, value in settings.items() if value is not None}
    errors = [
        (name, f"is {known[name]!r}; vLLM knows {', '.join(choices)}")
        for name, choices in CHOICES.items()
        if name in known and known[name] not in choices
    ]
    for name, (least, most) in _BOUNDS.items():
        value = known.get(name)
        if isinstance(value, int) and not least <= value <= most:
            errors.append((name, f"is {value}; it must be from {least} to {most}"))
    if known.get("max_model_len") == 0:
        errors.append(("max_model_len", "is 0; nothing can be answered within no tokens"))
    tokens, sequences = known.get("max_num_batched_tokens"), known.get("max_num_seqs")
    if isinstance(tokens, int) and isinstance(sequences, int) and tokens < sequences:
        errors.append(
            (
                "max_num_batched_tokens",
                f"is {tokens}, less than max_num_seqs, {sequences}: one for each at least",
            )
        )
    if known.get("enable_auto_tool_choice") and "tool_call_parser" not in known:
        errors.append(("enable_auto_tool_choice", "needs tool_call_parser"))
    return errors
