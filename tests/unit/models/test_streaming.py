"""Load formats that stream, and whether vLLM still says of them what is relied on."""

from __future__ import annotations

import ast
import importlib.util
import uuid
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.models.checkpoints import Remotes, peek_checkpoint, provide_model
from batch_pipelines.models.errors import CheckpointRefused
from batch_pipelines.models.file_choice import Wanted
from batch_pipelines.models.hub import Hub
from batch_pipelines.models.source import ModelSource
from batch_pipelines.models.streaming import STREAMED, is_streamed, tensorizer_uri
from batch_pipelines.storage.object_storage import ObjectStorage

REMOTES = Remotes(Hub())
S3 = ModelSource("objects", "s3://bucket/model")


def vllm_source(name: str) -> str:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / name).read_text()


def nothing() -> None:
    pass


def ignore(_: str) -> None:
    pass


@pytest.mark.parametrize("load_format", [None, "auto", "safetensors", "dummy"])
def test_other_load_formats_are_downloaded(load_format: str | None) -> None:
    assert not is_streamed(S3, load_format)


@pytest.mark.parametrize("load_format", list(STREAMED))
def test_local_folder_is_never_streamed(load_format: str) -> None:
    assert not is_streamed(ModelSource("folder", "file:///models/m"), load_format)


@pytest.mark.parametrize("load_format", ["runai_streamer", "runai_streamer_sharded"])
def test_streamer_gets_the_prefix_itself_and_nothing_is_fetched(load_format: str, tmp_path: Path) -> None:
    model = provide_model(S3, tmp_path, REMOTES, Wanted(load_format=load_format), check=nothing, log=ignore)
    assert (model.model, model.folder, dict(model.engine_args)) == ("s3://bucket/model", None, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "load_format"),
    [
        ("gs://b/m", "runai_streamer_sharded"),
        ("az://c/m", "tensorizer"),
        ("gs://b/m", "tensorizer"),
    ],
)
def test_store_the_load_format_cannot_read_is_refused(uri: str, load_format: str, tmp_path: Path) -> None:
    source, wanted = ModelSource("objects", uri), Wanted(load_format=load_format)
    with pytest.raises(CheckpointRefused, match=f"'{load_format}' streams from s3:// only, not from {uri}"):
        peek_checkpoint(source, tmp_path, REMOTES, wanted, check=nothing, log=ignore)


def test_hub_is_downloaded_for_the_streamer_and_refused_for_tensorizer() -> None:
    hub = ModelSource("hub", "hf://owner/name")
    assert not is_streamed(hub, "runai_streamer")
    with pytest.raises(CheckpointRefused, match="tensorizer"):
        is_streamed(hub, "tensorizer")


@pytest.mark.parametrize(
    ("weights", "uri"),
    [
        (["model.tensors"], "s3://b/m/model.tensors"),
        (["model-rank-000.tensors", "model-rank-001.tensors"], "s3://b/m/model-rank-%03d.tensors"),
        (["model-rank-00.tensors"], "s3://b/m/model-rank-%02d.tensors"),
    ],
)
def test_tensorizers_address_names_one_file_or_the_ranks(weights: list[str], uri: str) -> None:
    assert tensorizer_uri("s3://b/m", weights) == uri


@pytest.mark.parametrize(
    "weights",
    [["a.tensors"], ["model-rank-001.tensors"], ["model-rank-000.tensors", "model-rank-002.tensors"]],
)
def test_other_names_for_tensorizer_are_refused(weights: list[str]) -> None:
    with pytest.raises(CheckpointRefused, match=r"needs model.tensors"):
        tensorizer_uri("s3://b/m", weights)


def test_tensorizer_gets_a_folder_of_metadata_and_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"memory://models/{uuid.uuid4().hex}"
    store = ObjectStorage(roots=["memory://models"])
    for name in ("config.json", "model.tensors", "model.safetensors"):
        store.write(f"{uri}/{name}", b"{}")
    monkeypatch.setitem(STREAMED, "tensorizer", ("memory://",))

    def provide(**engine_args: Any) -> Any:
        source = ModelSource("objects", uri, engine_args=engine_args)
        wanted = Wanted(load_format="tensorizer")
        return provide_model(source, tmp_path, REMOTES, wanted, check=nothing, log=ignore)

    model = provide()
    assert model.engine_args == {"model_loader_extra_config": {"tensorizer_uri": f"{uri}/model.tensors"}}
    assert model.folder is not None
    assert model.model == str(model.folder)
    assert [path.name for path in model.folder.glob("[!.]*")] == ["config.json"]
    extra = {"tensorizer_uri": "s3://elsewhere/x.tensors", "num_readers": 4}
    own = provide(model_loader_extra_config=extra)
    assert own.engine_args == {"model_loader_extra_config": extra}


@pytest.mark.vllm
def test_vllm_still_has_these_load_formats_and_stores() -> None:
    loaders = ast.parse(vllm_source("model_executor/model_loader/__init__.py"))
    (formats,) = (
        ast.literal_eval(node.value.slice)
        for node in loaders.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "LoadFormats"
        and isinstance(node.value, ast.Subscript)
    )
    assert {*STREAMED, "auto", "mistral", "pt", "npcache", "dummy"} <= set(formats)
    assert "gguf" not in formats
    assert 'SUPPORTED_SCHEMES = ["s3://", "gs://", "az://"]' in vllm_source(
        "transformers_utils/runai_utils.py"
    )
    sharded = vllm_source("model_executor/model_loader/sharded_state_loader.py")
    assert "is_s3(local_model_path)" in sharded
    assert "is_runai_obj_uri" not in sharded
