"""From a model's name to what the engine loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_pipelines.models.registry import ModelNotFound, model_identity, resolve_model


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of models with two in it, and one beside it."""
    for name in ("models/tiny", "models/owner/tiny", "outside"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "models" / "empty").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize("name", ["tiny", "owner/tiny"])
def test_folder_named_like_the_model_is_taken(name: str, models: Path) -> None:
    assert resolve_model(name, None, models_dir=models) == str(models / name)


def test_relative_folder_of_models_gives_an_absolute_one(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.parent)
    assert resolve_model("tiny", None, models_dir=Path("models")) == str(models / "tiny")


@pytest.mark.parametrize("name", ["unknown", "owner/unknown", "empty", "meta-llama/Llama-3.1-8B_x.y"])
def test_other_names_are_left_to_the_hub(name: str, models: Path) -> None:
    assert resolve_model(name, None, models_dir=models) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../outside",
     "tiny/../../outside", "/etc", "a/b/c", "a//b", "-x", "--flag", "a\\b",
     "a\0", "a b", "~", "owner/..", "tiny\n", "s3://b/k", "ünï"],
)  # fmt: skip
def test_names_that_are_not_names_are_refused(name: str, models: Path) -> None:
    with pytest.raises(ModelNotFound, match="not the name of a model"):
        resolve_model(name, None, models_dir=models)


def test_checkpoint_goes_before_the_name(models: Path) -> None:
    outside = models.parent / "outside"
    assert resolve_model("tiny", str(outside), models_dir=models) == str(outside)
    assert resolve_model("tiny", f"file://{outside}", models_dir=models) == str(outside)


@pytest.mark.parametrize("uri", ["s3://bucket/llama", "gs://bucket/llama/v1", "az://container/llama"])
def test_checkpoint_in_object_storage_is_left_as_it_is(uri: str, models: Path) -> None:
    assert resolve_model("tiny", uri, models_dir=models) == uri


@pytest.mark.parametrize("path", ["/no/such/folder", "relative", "", "s3://", "http://host/x"])
def test_checkpoint_that_is_not_there_is_refused(path: str, models: Path) -> None:
    with pytest.raises(ModelNotFound, match="checkpoint_path"):
        resolve_model("tiny", path, models_dir=models)


def test_identity_changes_with_the_weights_and_not_with_the_place(models: Path) -> None:
    (models / "tiny" / "model.safetensors").write_bytes(b"a" * 300_000)
    first = model_identity(str(models / "tiny"))
    moved = (models / "tiny").rename(models / "moved")
    assert model_identity(str(moved)) == first
    (moved / "model.safetensors").write_bytes(b"a" * 299_999 + b"b")
    assert model_identity(str(moved)) != first


def test_identity_of_a_name_is_the_name() -> None:
    assert model_identity("owner/model") == "owner/model"
