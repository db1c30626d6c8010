"""Reading a checkpoint's small files."""

import json
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.preflight.model_folder import ModelFolder, read_model_folder
from batch_pipelines.preflight.settings import PreflightSettings

DEFAULTS = PreflightSettings()


def read(folder: Path, settings: PreflightSettings = DEFAULTS, **files: Any) -> ModelFolder:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_model_folder(folder, settings)


def test_an_empty_folder(tmp_path: Path) -> None:
    model = read(tmp_path)
    assert not model.has_tokenizer
    assert model.tokenizer_json is None
    assert model.template(None, tools=False) is None
    assert not model.own_rendering


def test_files_that_are_no_json_count_as_empty(tmp_path: Path) -> None:
    assert read(tmp_path, config_DOT_json="{", tokenizer_config_DOT_json="[]") == read_model_folder(
        tmp_path / "nowhere", DEFAULTS
    )


def test_where_templates_come_from_the_last_goes_before(tmp_path: Path) -> None:
    assert read(tmp_path, tokenizer_config_DOT_json={"chat_template": "a"}).templates == {"default": "a"}
    assert read(tmp_path, chat_template_DOT_json={"chat_template": "b"}).templates == {"default": "b"}
    assert read(tmp_path, chat_template_DOT_jinja="c").templates == {"default": "c"}
    assert read(tmp_path, additional_chat_templates__tool_use_DOT_jinja="t").templates == {
        "default": "c",
        "tool_use": "t",
    }


def test_templates_by_name(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}, {"name": "broken"}]
    model = read(tmp_path, tokenizer_config_DOT_json={"chat_template": named})
    assert model.template(None, tools=False) == "d"
    assert model.template(None, tools=True) == "t"
    assert model.template("tool_use", tools=False) == "t"
    assert model.template("{{ own }}", tools=True) == "{{ own }}"


def test_special_tokens_and_stop_ids(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        tokenizer_config_DOT_json={"bos_token": None, "eos_token": {"content": "</s>"}, "pad_token": "p"},
        special_tokens_map_DOT_json={"bos_token": "<s>", "pad_token": "other", "more": "x"},
        config_DOT_json={"eos_token_id": 7},
    )
    assert model.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "p"}
    assert model.stop_ids == (7,)
    assert read(tmp_path, generation_config_DOT_json={"eos_token_id": [1, 2]}).stop_ids == (1, 2)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "x.tiktoken"]
)
def test_a_tokenizer_in_any_form(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    model = read(tmp_path)
    assert model.has_tokenizer
    assert (model.tokenizer_json is not None) == (name == "tokenizer.json")


def test_a_tokenizer_of_another_folder(tmp_path: Path) -> None:
    other = tmp_path / "other"
    read(other, tokenizer_DOT_json={}, chat_template_DOT_jinja="theirs")
    model = read(tmp_path, PreflightSettings(tokenizer_folder=other), chat_template_DOT_jinja="own")
    assert model.tokenizer_json == other / "tokenizer.json"
    assert model.template(None, tools=False) == "theirs"


@pytest.mark.parametrize("mode", ["mistral", "deepseek_v32", "Kimi_K3"])
def test_modes_in_which_the_engine_renders_by_itself(tmp_path: Path, mode: str) -> None:
    assert read(tmp_path, PreflightSettings(tokenizer_mode=mode)).own_rendering
    assert not read(tmp_path, PreflightSettings(tokenizer_mode="hf")).own_rendering


def test_mistrals_own_format_goes_before_a_tokenizer_file_unless_told_otherwise(tmp_path: Path) -> None:
    model = read(tmp_path, tokenizer_DOT_json={}, tekken_DOT_json={})
    assert model.own_rendering
    assert model.calls_found_anyway
    assert model.tokenizer_json is None
    as_hf = read(tmp_path, PreflightSettings(tokenizer_mode="hf"))
    assert not as_hf.own_rendering
    assert as_hf.tokenizer_json is not None


def test_models_for_which_the_engine_brings_a_template_or_finds_calls(tmp_path: Path) -> None:
    assert read(tmp_path, config_DOT_json={"model_type": "paligemma"}).engine_has_template
    assert not read(tmp_path, config_DOT_json={"model_type": "llama"}).engine_has_template
    assert read(tmp_path, config_DOT_json={"architectures": ["GptOssForCausalLM"]}).calls_found_anyway


def test_a_tokenizer_that_is_not_at_hand(tmp_path: Path) -> None:
    files = {"tokenizer_DOT_json": {}, "chat_template_DOT_jinja": "not the one that counts"}
    model = read(tmp_path, PreflightSettings(tokenizer_elsewhere=True), **files)
    assert model.has_tokenizer
    assert model.tokenizer_json is None
    assert model.own_rendering
    assert model.template(None, tools=False) is None
