"""The model a job runs and how its engine is set up.

How a field becomes an argument of the engine is the engine's matter, not this module's.
"""

from typing import Annotated, Any

from pydantic import Field, Strict

from batch_pipelines.api.base import Int, NonNegativeInt, Number, OpenModel, PositiveInt, Toggle
from batch_pipelines.api.names import suggestion

__all__ = ["BatchCompletionsModelConfig"]


class BatchCompletionsModelConfig(OpenModel):
    """The model of a job and the settings of its engine.

    Keys it does not name are accepted, since clients of older versions send some; `unknown_keys` lists them.
    """

    model: str = Field(min_length=1)
    """The model that answers every item: a known name, or a name on the model hub."""
    checkpoint_path: str | None = None
    """Folder or object prefix with the model's weights; without it the model is found by name."""
    num_shards: PositiveInt | None = None
    """Devices to spread the model over if `tensor_parallel_size` is unset."""
    max_context_length: PositiveInt | None = None
    """Older name of `max_model_len`."""
    response_role: str | None = None
    """Role of the messages that chats are answered with; assistant when unset."""
    max_model_len: Int | None = None
    """Longest prompt and answer together, in tokens; without it, what the model allows."""
    max_num_seqs: PositiveInt | None = None
    """Most items the engine works on at once."""
    enforce_eager: Toggle | None = None
    """Run without captured graphs: starts faster and saves memory, but generates slower."""
    trust_remote_code: Toggle | None = None
    """Run Python code that comes with the checkpoint; a deployment may forbid it."""
    pipeline_parallel_size: PositiveInt | None = None
    """Groups of devices that each hold a range of the layers."""
    tensor_parallel_size: PositiveInt | None = None
    """Devices that each layer is spread over."""
    quantization: str | None = None
    """How the weights are quantized; without it, what the checkpoint says."""
    disable_log_requests: Toggle | None = None
    """Keep requests out of the engine's log."""
    chat_template: str | None = None
    """Jinja template for chats, in place of the checkpoint's."""
    tool_call_parser: str | None = None
    """Parser that finds tool calls in the model's text, by its engine name."""
    enable_auto_tool_choice: Toggle | None = None
    """Let the model decide when to call tools; needs `tool_call_parser`."""
    load_format: str | None = None
    """Format of the weights, such as `auto`, `safetensors`, `pt`, `dummy` or `runai_streamer`."""
    config_format: str | None = None
    """Format of the checkpoint's configuration: `auto`, `hf` or `mistral`."""
    tokenizer_mode: str | None = None
    """Tokenizer implementation: `auto`, `slow` or `mistral`."""
    limit_mm_per_prompt: str | None = None
    """Most images, videos and so on per prompt, as JSON text such as `{"image": 2}`."""
    max_num_batched_tokens: PositiveInt | None = None
    """Most tokens in one step of the engine."""
    tokenizer: str | None = None
    """Tokenizer's name or folder, if not the model's own."""
    dtype: str | None = None
    """Number type of weights and activations, such as `auto`, `bfloat16` or `float16`."""
    seed: Int | None = None
    """The engine's random seed."""
    revision: str | None = None
    """Branch, tag or commit of the model on its hub."""
    code_revision: str | None = None
    """Branch, tag or commit of the model's code on its hub."""
    rope_scaling: dict[str, Any] | None = None
    """Scaling of rotary position embeddings, to stretch the context."""
    tokenizer_revision: str | None = None
    """Branch, tag or commit of the tokenizer on its hub."""
    quantization_param_path: str | None = None
    """File with scaling factors of an 8-bit key-value cache."""
    max_seq_len_to_capture: NonNegativeInt | None = None
    """Longest sequence, in tokens, that captured graphs serve."""
    disable_sliding_window: Toggle | None = None
    """Attend to the whole context even if the model has a sliding window."""
    skip_tokenizer_init: Toggle | None = None
    """Start without a tokenizer; prompts must then be token ids."""
    served_model_name: str | None = None
    """The model's name in the output; without it, `model`."""
    override_neuron_config: dict[str, Any] | None = None
    """Settings for AWS Neuron devices."""
    mm_processor_kwargs: dict[str, Any] | None = None
    """Arguments of the model's image, audio or video processor."""
    block_size: PositiveInt | None = None
    """Tokens in a block of the key-value cache."""
    gpu_memory_utilization: Annotated[float, Strict(), Field(gt=0, le=1)] | None = None
    """Fraction of the device's memory the engine may take, above 0 and at most 1."""
    swap_space: Annotated[Number, Field(ge=0)] | None = None
    """Host memory for swapped sequences, in GiB per device."""
    cache_dtype: str | None = None
    """Number type of the key-value cache, such as `auto` or `fp8`."""
    num_gpu_blocks_override: NonNegativeInt | None = None
    """Blocks of the key-value cache, in place of the measured number."""
    enable_prefix_caching: Toggle | None = None
    """Reuse the work on a beginning that prompts share."""

    def unknown_keys(self) -> list[str]:
        """Keys that are set but have no effect, each with the nearest known name."""
        known = type(self).model_fields
        return [
            f"{key}{suggestion(key, known)}"
            for key, value in (self.model_extra or {}).items()
            if value is not None
        ]
