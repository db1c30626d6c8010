"""What of a checkpoint is fetched: what an engine needs, and nothing that is not safe."""

from __future__ import annotations

import pytest

from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound
from batch_pipelines.models.file_choice import FileChoice, RemoteFile, Wanted, choose, known_files
from tests.unit.models.checkpoint_files import NEEDED, tiny_checkpoint


def chosen(names: list[str], **wanted: object) -> FileChoice:
    files = [RemoteFile(name, 10) for name in names]
    return choose(files, Wanted(**wanted), "s3://b/m")  # type: ignore[arg-type]


def names_of(choice: FileChoice) -> set[str]:
    return {file.name for file in (*choice.metadata, *choice.weights)}


def test_only_what_inference_needs_is_chosen() -> None:
    choice = chosen(list(tiny_checkpoint()))
    assert names_of(choice) == NEEDED
    assert choice.weight_bytes == 20


def test_code_comes_only_if_it_is_wanted() -> None:
    assert names_of(chosen(list(tiny_checkpoint()), include_code=True)) == NEEDED | {"modeling_tiny.py"}


@pytest.mark.parametrize(
    "name",
    ["tokenizer.model.v3", "tekken.json", "vocab.json", "qwen.tiktoken", "additional_chat_templates/r.jinja",
     "1_Pooling/config.json", "sentencepiece.bpe.model", "special_tokens_map.json"],
)  # fmt: skip
def test_files_of_tokenizers_and_templates_are_chosen(name: str) -> None:
    assert name in names_of(chosen(["config.json", "model.safetensors", name]))


@pytest.mark.parametrize(
    "name",
    ["../config.json", "a/../b.json", "/etc/x.json", "a//b.json", ".git/config.json", ".hidden.json",
     "a\\b.json", "rng_state_0.pth", "trainer_state.json", "scheduler.pt", "checkpoint-500/model.safetensors",
     "model.gguf", "original/model.safetensors", "onnx/config.json", "events.out.tfevents.1", "x.part"],
)  # fmt: skip
def test_other_files_are_not(name: str) -> None:
    everything = chosen(["config.json", "model.safetensors", name], include_code=True, allow_pickle=True)
    assert names_of(everything) == {"config.json", "model.safetensors"}


def test_pickle_files_are_never_taken_beside_safetensors() -> None:
    names = ["config.json", "model.safetensors", "pytorch_model.bin"]
    assert names_of(chosen(names, allow_pickle=True)) == {"config.json", "model.safetensors"}


def test_pickle_files_alone_need_the_deployments_word() -> None:
    names = ["config.json", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    with pytest.raises(
        CheckpointRefused, match=r"s3://b/m .* pickle files \(pytorch_model-00001.*convert them"
    ):
        chosen(names)
    choice = chosen([*names, "training_args.bin"], allow_pickle=True)
    assert {file.name for file in choice.weights} == set(names[1:])


@pytest.mark.parametrize("load_format", [None, "auto", "safetensors", "mistral", "tensorizer"])
def test_checkpoint_without_weights_for_the_load_format_is_refused(load_format: str | None) -> None:
    with pytest.raises(
        CheckpointRefused, match=r"no weights that load_format .* such as config.json, model.gguf"
    ):
        chosen(["config.json", "model.gguf"], load_format=load_format)


def test_made_up_weights_need_no_files() -> None:
    assert chosen(["config.json", "model.safetensors"], load_format="dummy").weights == ()


@pytest.mark.parametrize("names", [["model.safetensors"], [], ["sub/config.json"]])
def test_folder_without_a_configuration_is_no_checkpoint(names: list[str]) -> None:
    with pytest.raises(ModelNotFound, match=r"s3://b/m holds no config.json"):
        chosen(names)


@pytest.mark.parametrize(
    ("load_format", "weights"),
    [
        (None, {"consolidated.safetensors"}),
        ("mistral", {"consolidated.safetensors"}),
        ("hf", {"model.safetensors"}),
        ("safetensors", {"model.safetensors"}),
        ("runai_streamer", {"model.safetensors"}),
    ],
)
def test_weights_that_are_there_in_two_forms_come_in_the_one_the_engine_reads(
    load_format: str | None, weights: set[str]
) -> None:
    names = ["config.json", "params.json", "consolidated.safetensors", "model.safetensors"]
    assert {file.name for file in chosen(names, load_format=load_format).weights} == weights


def test_only_what_could_be_loaded_tells_versions_apart() -> None:
    files = [RemoteFile(name, 1) for name in tiny_checkpoint()]
    assert {file.name for file in known_files(files)} == NEEDED | {"modeling_tiny.py", "pytorch_model.bin"}
