"""What a checkpoint's files tell, held against published sizes and against the engine itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.models.checkpoint_facts import (
    CheckpointFacts,
    CheckpointUnreadable,
    facts_from_config,
    read_checkpoint_facts,
)
from tests.support import model_configs as known

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def facts_of(config: Mapping[str, Any], **changes: Any) -> CheckpointFacts:
    return facts_from_config({**config, **changes}, weight_bytes=None)


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (known.LLAMA_3_8B, 8_030_261_248),
        (known.LLAMA_2_13B, 13_015_864_320),
        (known.LLAMA_3_70B, 70_553_706_496),
        (known.LLAMA_31_405B, 405_853_388_800),
        (known.MIXTRAL_8X7B, 46_702_792_704),
        (known.MISTRAL_7B_V01, 7_241_732_096),
    ],
)
def test_parameters_by_dimensions_are_the_published_ones(config: Mapping[str, Any], parameters: int) -> None:
    assert facts_of(config).parameters == parameters


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (known.QWEN25_7B, 7.62),  # its biases are not counted
        (known.QWEN25_05B, 0.494),
        (known.QWEN2_72B, 72.7),
        (known.CODELLAMA_34B, 33.7),
        (known.DEEPSEEK_CODER_V2_LITE, 15.7),
        (known.DEEPSEEK_V3, 671),
        (known.GEMMA_3_4B, 4.3),
        (known.PHI_3_MINI_128K, 3.82),
        (known.FALCON_7B, 6.92),
        (known.GPT_2, 0.124),
    ],
)
def test_parameters_of_other_shapes_are_close(config: Mapping[str, Any], billions: float) -> None:
    assert facts_of(config).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_measured_weights_go_before_dimensions() -> None:
    assert facts_from_config(known.LLAMA_3_8B, weight_bytes=15_000_000_000).parameters == 7_500_000_000


def test_weights_in_32_bits_have_half_the_parameters() -> None:
    measured = facts_from_config({**known.LLAMA_3_8B, "torch_dtype": "float32"}, weight_bytes=32_000_000_000)
    assert (measured.parameters, measured.dtype_bytes) == (8_000_000_000, 2)


def test_weights_of_unknown_type_are_read_as_32_bits() -> None:
    config = {key: value for key, value in known.LLAMA_3_8B.items() if key != "torch_dtype"}
    assert facts_of(config).weight_bytes == 4 * 8_030_261_248


@pytest.mark.parametrize(
    ("quantization", "name", "stored_gib"),
    [
        (AWQ, "awq", 5.2),
        ({"quant_method": "fp8"}, "fp8", 8.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 5.2),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8}}},
            },
            "compressed-tensors",
            8.5,
        ),
        ({"quant_method": "something-new"}, "something-new", 15.0),
    ],
)
def test_quantized_checkpoints_keep_their_parameters(
    quantization: dict[str, Any], name: str, stored_gib: float
) -> None:
    facts = facts_of(known.LLAMA_3_8B, quantization_config=quantization)
    assert facts.quantization == name
    assert facts.parameters == 8_030_261_248
    assert facts.weight_bytes / 2**30 == pytest.approx(stored_gib, rel=0.02)


def test_measured_weights_of_a_quantized_checkpoint_tell_its_parameters() -> None:
    # 5.74 GB is what a published AWQ checkpoint of the model takes, scales included.
    facts = facts_from_config({**known.LLAMA_3_8B, "quantization_config": AWQ}, weight_bytes=5_740_000_000)
    assert facts.parameters == pytest.approx(8.03e9, rel=0.05)


def test_latent_attention_is_one_vector_for_each_token() -> None:
    facts = facts_of(known.DEEPSEEK_CODER_V2_LITE)
    assert (facts.latent_attention, facts.kv_heads, facts.head_dim) == (True, 1, 512 + 64)


@pytest.mark.parametrize(
    ("config", "sliding", "window", "stateful"),
    [
        (known.MISTRAL_7B_V01, 32, 4096, 0),
        (known.QWEN25_7B, 0, None, 0),  # names a window, and does not use it
        (known.GEMMA_3_4B, 29, 1024, 0),  # every sixth layer sees everything
        ({**known.MISTRAL_7B_V01, "sliding_window": None}, 0, None, 0),
        ({**known.LLAMA_3_8B, "sliding_window": 128}, 0, None, 0),  # not told which layers: none
        (
            {
                **known.LLAMA_3_8B,
                "sliding_window": 128,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            16,
            128,
            0,
        ),
        (
            {**known.LLAMA_3_8B, "layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8},
            0,
            None,
            24,
        ),
        ({**known.LLAMA_3_8B, "full_attention_interval": 4}, 0, None, 24),
    ],
)
def test_layers_that_do_not_cache_everything_are_told_apart(
    config: Mapping[str, Any], sliding: int, window: int | None, stateful: int
) -> None:
    facts = facts_of(config)
    assert (facts.sliding_layers, facts.sliding_window, facts.stateful_layers) == (sliding, window, stateful)


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32_768),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 16_384),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 8192),
        ({"rope_scaling": {"rope_type": "linear", "factor": None}}, 8192),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, 16_384),
        ({"model_max_length": 4096}, 4096),
        ({"max_position_embeddings": None, "seq_length": 2048}, 2048),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_context_follows_the_engines_rule(changes: dict[str, Any], context: int | None) -> None:
    assert facts_of(known.LLAMA_3_8B, **changes).context == context


def test_longrope_starts_from_the_original_context() -> None:
    assert facts_of(known.PHI_3_MINI_128K).context == 4096


def test_vision_is_told_from_text() -> None:
    assert facts_of(known.GEMMA_3_4B).vision
    assert not facts_of(known.LLAMA_3_8B).vision


def test_language_model_is_found_in_a_multi_modal_one() -> None:
    llava = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32_064},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
    }
    facts = facts_of(llava)
    assert (facts.layers, facts.attention_heads, facts.context, facts.vocab_size) == (32, 32, 4096, 32_064)
    assert facts.parameters == pytest.approx(7.06e9, rel=0.01)
    deeper = facts_of({"thinker_config": {"text_config": dict(known.QWEN25_7B)}})
    assert deeper.layers == 28


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
def test_missing_dimension_is_named(key: str) -> None:
    config = {name: value for name, value in known.LLAMA_3_8B.items() if name != key}
    with pytest.raises(CheckpointUnreadable, match=f"{key} is missing"):
        facts_from_config(config, weight_bytes=None)


@pytest.mark.parametrize("value", ["32", True, -1, 2.5, [32], 2**70])
def test_dimension_that_is_no_number_is_named(value: object) -> None:
    with pytest.raises(CheckpointUnreadable, match="num_hidden_layers is not a whole number"):
        facts_of(known.LLAMA_3_8B, num_hidden_layers=value)


@pytest.mark.parametrize("odd", [None, "LlamaForCausalLM", 3, {}])
def test_odd_values_elsewhere_do_no_harm(odd: object) -> None:
    strange = dict.fromkeys(
        (
            "architectures",
            "quantization_config",
            "rope_scaling",
            "vision_config",
            "layer_types",
            "text_config",
        ),
        odd,
    )
    assert facts_of(known.LLAMA_3_8B, **strange).layers == 32


class TestFolder:
    """Reading from a folder."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(known.LLAMA_3_8B))
        return tmp_path

    def test_index_goes_before_files(self, folder: Path) -> None:
        (folder / "model-00001-of-00002.safetensors").write_bytes(b"x" * 100)
        (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 16000}}')
        assert read_checkpoint_facts(folder).weight_bytes == 16_000

    def test_files_are_added_up_without_a_second_copy(self, folder: Path) -> None:
        for name in ("model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"):
            (folder / name).write_bytes(b"x" * 100)
        assert read_checkpoint_facts(folder).weight_bytes == 200

    def test_pickled_weights_count_where_there_are_no_others(self, folder: Path) -> None:
        (folder / "pytorch_model.bin").write_bytes(b"x" * 100)
        assert read_checkpoint_facts(folder).weight_bytes == 100

    def test_folder_without_weights_is_estimated(self, folder: Path) -> None:
        assert read_checkpoint_facts(folder).weight_bytes == 2 * 8_030_261_248

    def test_size_that_is_known_from_elsewhere_is_taken(self, folder: Path) -> None:
        assert read_checkpoint_facts(folder, weight_bytes=7).weight_bytes == 7

    def test_folder_without_configuration_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointUnreadable, match=r"has no config\.json"):
            read_checkpoint_facts(tmp_path)

    @pytest.mark.parametrize("text", ["{", "[]", "null"])
    def test_broken_configuration_is_named(self, folder: Path, text: str) -> None:
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointUnreadable, match=r"config\.json"):
            read_checkpoint_facts(folder)

    def test_file_is_named_with_the_missing_key(self, folder: Path) -> None:
        (folder / "config.json").write_text('{"model_type": "rwkv"}')
        with pytest.raises(CheckpointUnreadable, match=r"config\.json: num_hidden_layers is missing"):
            read_checkpoint_facts(folder)


_ENGINE_SCRIPT = """
import json, sys
import vllm.config
from vllm.config.model import _get_and_verify_max_len
from vllm.transformers_utils import model_arch_config_convertor as convertors
from vllm.transformers_utils.config import get_config, get_hf_text_config

def facts(folder):
    config = get_config(folder, trust_remote_code=False)
    text = get_hf_text_config(config)
    known = convertors.MODEL_ARCH_CONFIG_CONVERTORS
    shape = known.get(config.model_type, convertors.ModelArchConfigConvertorBase)(config, text).convert()
    context = _get_and_verify_max_len(text, shape, None, None, False, None)
    return [context, shape.total_num_hidden_layers, shape.hidden_size, shape.total_num_attention_heads,
            1 if shape.is_deepseek_mla else shape.total_num_kv_heads, shape.head_size, shape.vocab_size]

print(json.dumps([facts(folder) for folder in sys.argv[1:]]))
"""


@pytest.mark.vllm
def test_facts_are_what_the_engine_derives(tmp_path: Path) -> None:
    configs: dict[str, Mapping[str, Any]] = {
        name: value for name, value in vars(known).items() if name.isupper() and not name.startswith("_")
    }
    configs["linear"] = {**known.LLAMA_3_8B, "rope_scaling": {"type": "linear", "factor": 4.0}}
    configs["falcon"] = {**known.FALCON_7B, "max_position_embeddings": 2048}
    del configs["FALCON_7B"]  # its context is a default of its class, which the engine knows and we do not
    for name, config in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    folders = [str(tmp_path / name) for name in configs]
    command = [sys.executable, "-c", _ENGINE_SCRIPT, *folders]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    ours = []
    for config in configs.values():
        facts = facts_of(config)
        shape = (facts.context, facts.layers, facts.hidden_size, facts.attention_heads)
        ours.append([*shape, facts.kv_heads, facts.head_dim, facts.vocab_size])
    assert dict(zip(configs, ours, strict=True)) == dict(zip(configs, json.loads(printed), strict=True))
