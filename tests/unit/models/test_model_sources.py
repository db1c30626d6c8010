"""From a request's model to the place of its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.models.catalog import CatalogEntry, ModelCatalog
from batch_pipelines.models.errors import ModelNotFound
from batch_pipelines.models.source import ModelSource, locate_model

CATALOG = ModelCatalog(
    {
        "known": CatalogEntry(hub="owner/Known-8B", engine_args={"tool_call_parser": "hermes"}),
        "pinned": CatalogEntry(hub="owner/pinned", revision="v1"),
        "stored": CatalogEntry(checkpoint="s3://models/stored"),
        "gone": CatalogEntry(checkpoint="/no/such/folder"),
    }
)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of models with two in it, and one beside it."""
    for name in ("models/tiny", "models/owner/tiny", "outside"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "models" / "empty").mkdir()
    return tmp_path / "models"


def locate(
    models: Path, *, catalog: ModelCatalog = CATALOG, allow_hub: bool = True, **config: Any
) -> ModelSource:
    return locate_model(
        BatchCompletionsModelConfig.model_validate(config),
        catalog=catalog,
        models_dir=models,
        allow_hub=allow_hub,
    )


@pytest.mark.parametrize("name", ["tiny", "owner/tiny"])
def test_folder_named_like_the_model_is_taken(name: str, models: Path) -> None:
    source = locate(models, model=name, allow_hub=False)
    assert source.kind == "folder"
    assert source.folder == models / name
    assert source.warnings == ()


def test_relative_folder_of_models_gives_an_absolute_one(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.parent)
    assert locate(Path("models"), model="tiny").folder == models / "tiny"


def test_folder_with_an_odd_name_survives_its_uri(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20#?é"
    folder.mkdir()
    assert locate(tmp_path, model="m", checkpoint_path=str(folder)).folder == folder


@pytest.mark.parametrize("name", ["unknown", "owner/unknown", "empty", "meta-llama/Llama-3.1-8B_x.y"])
def test_other_names_are_left_to_the_hub_with_a_warning(name: str, models: Path) -> None:
    source = locate(models, model=name)
    assert (source.kind, source.uri, source.hub_name) == ("hub", f"hf://{name}", name)
    assert "not in the catalogue" in source.warnings[0]


def test_near_miss_of_a_known_name_is_pointed_out(models: Path) -> None:
    assert "did you mean `pinned`?" in locate(models, model="pinnd").warnings[0]
    with pytest.raises(ModelNotFound, match="did you mean `pinned`"):
        locate(models, model="pinnd", allow_hub=False)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../outside", "tiny/../../outside", "/etc", "a/b/c", "a//b", "-x", "--flag", "a\\b",
     "a\0", "a b", "~", "owner/..", "tiny\n", "s3://b/k", "ünï"],
)  # fmt: skip
def test_names_that_are_not_names_are_refused(name: str, models: Path) -> None:
    config = BatchCompletionsModelConfig.model_construct(model=name)
    with pytest.raises(ModelNotFound, match="not the name of a model"):
        locate_model(config, catalog=CATALOG, models_dir=models, allow_hub=True)


def test_no_catalogue_leads_to_a_folder_outside(models: Path) -> None:
    catalog = ModelCatalog({"../outside": CatalogEntry(hub="owner/name")})
    assert locate(models, catalog=catalog, model="../outside").uri == "hf://owner/name"


def test_catalogue_entry_gives_its_place_and_its_arguments(models: Path) -> None:
    known = locate(models, model="KNOWN")
    assert (known.uri, known.engine_args) == ("hf://owner/Known-8B", {"tool_call_parser": "hermes"})
    stored = locate(models, model="stored", allow_hub=False)
    assert (stored.kind, stored.uri) == ("objects", "s3://models/stored")


@pytest.mark.parametrize("name", ["known", "owner/Known-8B", "Known-8B"])
def test_folder_stands_in_for_an_entry_of_the_hub(name: str, models: Path) -> None:
    (models / name).mkdir(parents=True)
    (models / name / "config.json").write_text("{}")
    source = locate(models, model="known", allow_hub=False)
    assert source.folder == models / name
    assert source.engine_args == {"tool_call_parser": "hermes"}


def test_checkpoint_of_an_entry_goes_before_a_folder(models: Path) -> None:
    (models / "stored").mkdir()
    (models / "stored" / "config.json").write_text("{}")
    assert locate(models, model="stored").uri == "s3://models/stored"


def test_checkpoint_path_goes_before_everything_and_keeps_the_arguments(models: Path) -> None:
    outside = models.parent / "outside"
    source = locate(models, model="known", checkpoint_path=f"file://{outside}")
    assert source.folder == outside
    assert source.engine_args == {"tool_call_parser": "hermes"}
    assert locate(models, model="tiny", checkpoint_path=str(outside)).folder == outside


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("s3://bucket/llama/", "s3://bucket/llama"),
        ("gs://bucket/llama/v1", "gs://bucket/llama/v1"),
        ("gcs://bucket/llama", "gs://bucket/llama"),
        ("az://container/llama", "az://container/llama"),
    ],
)
def test_checkpoint_in_object_storage_gets_its_canonical_address(given: str, uri: str, models: Path) -> None:
    source = locate(models, model="tiny", checkpoint_path=given, allow_hub=False)
    assert (source.kind, source.uri) == ("objects", uri)


def test_checkpoint_path_can_name_the_hub(models: Path) -> None:
    source = locate(models, model="tiny", checkpoint_path="hf://owner/name@refs/pr/4")
    assert (source.kind, source.uri, source.revision) == ("hub", "hf://owner/name", "refs/pr/4")
    assert str(source) == "hf://owner/name@refs/pr/4"


@pytest.mark.parametrize(
    "path",
    ["/no/such/folder", "relative", "", "s3://", "http://host/x", "memory://x/y", "~/m", "/tmp/../etc", "hf://",
     "hf://a/b/c", "hf://../x", "hf://a/b@", "hf://a/b@x y", "s3://b/../c", "file://host/x", "abfss://c@account/k"],
)  # fmt: skip
def test_checkpoint_that_is_not_there_is_refused(path: str, models: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"^checkpoint_path"):
        locate(models, model="tiny", checkpoint_path=path)


def test_signature_in_a_checkpoint_path_is_not_repeated(models: Path) -> None:
    with pytest.raises(ModelNotFound) as raised:
        locate(models, model="tiny", checkpoint_path="https://host/x?X-Amz-Signature=secret")
    assert "secret" not in str(raised.value)


def test_folder_of_an_entry_that_is_not_here_is_told(models: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"'gone'.*catalogue says /no/such/folder"):
        locate(models, model="gone")


def test_requests_revision_goes_before_the_catalogues(models: Path) -> None:
    assert locate(models, model="pinned").revision == "v1"
    assert locate(models, model="pinned", revision="v2").revision == "v2"


def test_revision_of_what_has_none_is_a_warning(models: Path) -> None:
    source = locate(models, model="tiny", revision="main")
    assert source.revision is None
    assert "revision has no effect" in source.warnings[0]


def test_contradicting_and_impossible_revisions_are_refused(models: Path) -> None:
    with pytest.raises(ModelNotFound, match="revision 'b' contradicts checkpoint_path"):
        locate(models, model="m", checkpoint_path="hf://x/y@a", revision="b")
    with pytest.raises(ModelNotFound, match=r"revision '\.\./x' is not"):
        locate(models, model="pinned", revision="../x")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model": "m", "checkpoint_path": "hf://x/y"}, "checkpoint_path hf://x/y"),
        ({"model": "known"}, "in the catalogue"),
        ({"model": "owner/unknown"}, "not in the catalogue"),
    ],
)
def test_hub_that_is_not_allowed_is_told(config: dict[str, Any], says: str, models: Path) -> None:
    with pytest.raises(ModelNotFound, match=f"{says}.*takes no models from"):
        locate(models, allow_hub=False, **config)
