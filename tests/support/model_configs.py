"""`config.json` of well-known models, cut to the keys that say how large a model is. All are public facts."""

from collections.abc import Mapping
from typing import Any, Final

Config = Mapping[str, Any]


def _llama(hidden: int, layers: int, heads: int, kv_heads: int, width: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
        "vocab_size": 128_256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **more,
    }


_LLAMA_31_ROPE = {
    "max_position_embeddings": 131_072,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
}  # fmt: skip

LLAMA_2_13B: Final = _llama(
    5120, 40, 40, 40, 13_824, vocab_size=32_000, max_position_embeddings=4096, torch_dtype="float16"
)
LLAMA_3_8B: Final = _llama(4096, 32, 32, 8, 14_336)
LLAMA_3_70B: Final = _llama(8192, 80, 64, 8, 28_672)
LLAMA_31_8B: Final = _llama(4096, 32, 32, 8, 14_336, **_LLAMA_31_ROPE)
LLAMA_31_405B: Final = _llama(16_384, 126, 128, 8, 53_248, **_LLAMA_31_ROPE)
CODELLAMA_34B: Final = _llama(8192, 48, 64, 8, 22_016, vocab_size=32_000, max_position_embeddings=16_384)
MIXTRAL_8X7B: Final = _llama(
    4096, 32, 32, 8, 14_336,
    architectures=["MixtralForCausalLM"], model_type="mixtral", vocab_size=32_000,
    max_position_embeddings=32_768, num_local_experts=8, num_experts_per_tok=2, sliding_window=None,
)  # fmt: skip
QWEN2_72B: Final = _llama(
    8192, 80, 64, 8, 29_568,
    architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=152_064,
    max_position_embeddings=32_768, sliding_window=131_072, use_sliding_window=False,
)  # fmt: skip
QWEN25_7B: Final = _llama(
    3584, 28, 28, 4, 18_944,
    architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=152_064,
    max_position_embeddings=32_768, sliding_window=131_072, use_sliding_window=False,
)  # fmt: skip
QWEN25_05B: Final = _llama(
    896, 24, 14, 2, 4864,
    architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=151_936,
    max_position_embeddings=32_768, tie_word_embeddings=True,
)  # fmt: skip
DEEPSEEK_CODER_V2_LITE: Final[Config] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10_944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 102_400,
    "max_position_embeddings": 163_840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: Final[Config] = {
    **DEEPSEEK_CODER_V2_LITE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "vocab_size": 129_280,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GEMMA_3_4B: Final[Config] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {
        "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
    },
}  # fmt: skip
PHI_3_MINI_128K: Final = _llama(
    3072, 32, 32, 32, 8192,
    architectures=["Phi3ForCausalLM"], model_type="phi3", vocab_size=32_064, max_position_embeddings=131_072,
    original_max_position_embeddings=4096,
    rope_scaling={"type": "longrope", "long_factor": [1.0] * 48, "short_factor": [1.0] * 48},
)  # fmt: skip
MISTRAL_7B_V01: Final = _llama(
    4096, 32, 32, 8, 14_336,
    architectures=["MistralForCausalLM"], model_type="mistral", vocab_size=32_000,
    max_position_embeddings=32_768, sliding_window=4096,
)  # fmt: skip
FALCON_7B: Final[Config] = {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65_024,
    "torch_dtype": "bfloat16",
}
GPT_2: Final[Config] = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50_257,
}
