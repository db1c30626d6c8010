"""Values the engine would refuse are refused before it starts."""

import subprocess
import sys

import orjson
import pytest

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines.vllm_args import engine_args, setting_errors
from batch_pipelines.engines.vllm_values import CHOICES, value_errors


def config(**fields: object) -> BatchCompletionsModelConfig:
    return BatchCompletionsModelConfig.model_validate({"model": "tiny", **fields})


@pytest.mark.parametrize("name", CHOICES)
def test_a_value_out_of_the_list_is_refused_with_the_list(name: str) -> None:
    assert value_errors({name: CHOICES[name][0]}) == []
    ((field, message),) = value_errors({name: "nonsense"})
    assert field == name
    assert "'nonsense'" in message
    assert all(choice in message for choice in CHOICES[name])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"max_model_len": -2}, "max_model_len"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"num_gpu_blocks_override": 0}, "num_gpu_blocks_override"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"max_num_batched_tokens": 8, "max_num_seqs": 16}, "max_num_batched_tokens"),
        ({"enable_auto_tool_choice": True}, "enable_auto_tool_choice"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, object], field: str) -> None:
    assert [name for name, _ in value_errors(settings)] == [field]


def test_every_error_is_found_at_once() -> None:
    errors = setting_errors(config(dtype="float99", num_shards=1, cache_dtype="float7", seed=-1), {})
    assert [name for name, _ in errors] == ["dtype", "cache_dtype", "seed"]


def test_an_error_is_told_by_the_name_the_request_has_for_it() -> None:
    (error,) = setting_errors(config(max_context_length=2**40), {})
    assert error[0] == "max_context_length"


def test_the_deployments_own_settings_are_not_the_requests_fault() -> None:
    assert setting_errors(config(), {"dtype": "float99"}) == []
    assert setting_errors(config(max_num_seqs=16), {"max_num_batched_tokens": 8}) == []


def test_the_slow_tokenizer_is_gone_and_a_warning_says_so() -> None:
    translated = engine_args(config(tokenizer_mode="slow"), {})
    assert translated.args == ["--tokenizer-mode=auto"]
    assert "tokenizer_mode slow has no effect" in translated.warnings[0]


ASKED = """
import json
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.model_executor.model_loader import _LOAD_FORMAT_TO_MODEL_LOADER
from vllm.tokenizers.registry import _VLLM_TOKENIZERS
from vllm.tool_parsers import ToolParserManager
from vllm.transformers_utils.config import _CONFIG_FORMAT_TO_CONFIG_PARSER
from vllm.utils.argparse_utils import FlexibleArgumentParser
choices = {action.dest: action.choices for action in make_arg_parser(FlexibleArgumentParser())._actions}
print('RESULT', json.dumps({
    'dtype': choices['dtype'],
    'cache_dtype': choices['kv_cache_dtype'],
    'quantization': list(QUANTIZATION_METHODS),
    'load_format': list(_LOAD_FORMAT_TO_MODEL_LOADER),
    'config_format': ['auto', *_CONFIG_FORMAT_TO_CONFIG_PARSER],
    'tokenizer_mode': ['auto', 'slow', *_VLLM_TOKENIZERS],
    'tool_call_parser': ToolParserManager.list_registered(),
}))
"""


@pytest.mark.vllm
def test_the_lists_are_the_installed_engines_own() -> None:
    ran = subprocess.run([sys.executable, "-P", "-c", ASKED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    asked = orjson.loads(ran.stdout.partition("RESULT ")[2])
    assert {name: sorted(values) for name, values in asked.items()} == {
        name: sorted(values) for name, values in CHOICES.items()
    }
