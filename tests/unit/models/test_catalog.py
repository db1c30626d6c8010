"""The catalogue: names people use, a deployment's own entries, and errors that name the entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_pipelines.engines.vllm_values import TOOL_PARSERS
from batch_pipelines.models.catalog import load_catalog
from batch_pipelines.models.errors import CatalogInvalid

PACKAGED = load_catalog()


def catalog_file(folder: Path, text: str) -> Path:
    path = folder / "catalog.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "hub"),
    [
        ("llama-3-8b-instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3-1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("qwen2-72b-instruct", "Qwen/Qwen2-72B-Instruct"),
        ("mixtral-8x7b-instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    ],
)
def test_well_known_names_are_found_in_any_case(name: str, hub: str) -> None:
    entry = PACKAGED.find(name)
    assert entry is not None
    assert entry.hub == hub


def test_unknown_name_is_not_found() -> None:
    assert PACKAGED.find("no-such-model") is None


def test_packaged_entries_name_the_hub_and_tool_parsers_of_the_engine() -> None:
    parsers = set(TOOL_PARSERS)  # which another test compares with vLLM's own
    assert "llama3_json" in parsers
    for name, entry in PACKAGED.entries.items():
        assert entry.hub, name
        assert set(entry.engine_args) <= {"tool_call_parser"}, name
        assert entry.engine_args.get("tool_call_parser", "hermes") in parsers, name


def test_deployments_entries_add_replace_and_remove(tmp_path: Path) -> None:
    path = catalog_file(
        tmp_path,
        """
        models:
          our-llama:
            checkpoint: s3://models/our-llama/
            aliases: [Our-8B]
            engine_args: { max_model_len: 8192, tool_call_parser: hermes }
          Llama-3-8B-Instruct: { checkpoint: /models/llama-3 }
          pinned: { hub: owner/name, revision: 0123abc }
          qwen3-8b: null
        """,
    )
    catalog = load_catalog(path)
    ours = catalog.find("OUR-8b")
    assert ours is not None
    assert ours is catalog.find("our-llama")
    assert ours.checkpoint == "s3://models/our-llama"
    assert ours.engine_args == {"max_model_len": 8192, "tool_call_parser": "hermes"}
    replaced = catalog.find("llama-3-8b-instruct")
    assert replaced is not None
    assert (replaced.checkpoint, replaced.hub) == ("/models/llama-3", None)
    pinned = catalog.find("pinned")
    assert pinned is not None
    assert pinned.revision == "0123abc"
    assert catalog.find("qwen3-8b") is None
    assert catalog.find("qwen3-32b") is not None


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{}", "needs `checkpoint` or `hub`"),
        ("{hub: a/b, checkpoint: s3://b/k}", "needs `checkpoint` or `hub`"),
        ("{hub: just-a-name}", "expected 'owner/name'"),
        ("{hub: a/../b}", "expected 'owner/name'"),
        ("{checkpoint: models/x}", "absolute folder"),
        ("{checkpoint: hf://a/b}", "hub: owner/name"),
        ("{checkpoint: https://host/x}", "absolute folder"),
        ("{checkpoint: s3://b/a/../c}", "'..' is not allowed"),
        ("{checkpoint: 's3://user:secret@b/k'}", "may stand before '@'"),
        ("{checkpoint: s3://b/k, revision: main}", "a `checkpoint` has none"),
        ("{hub: a/b, revision: 123}", "revision.*string"),
        ("{hub: a/b, revision: 'x y'}", "not a branch, tag or commit"),
        ("{hub: a/b, engine_args: {max_model_len: long}}", "max_model_len must be"),
        ("{hub: a/b, engine_args: {--max-model-len: 1}}", "not the name of an argument"),
        ("{hub: a/b, engine_args: {checkpoint_path: /x}}", "does not belong here"),
        ("{hub: a/b, aliases: ['a b']}", "cannot be a name"),
        ("{hub: a/b, checkpiont: s3://b/k}", "checkpiont: unknown field"),
    ],
)
def test_wrong_entry_is_told_with_file_and_entry(entry: str, says: str, tmp_path: Path) -> None:
    path = catalog_file(tmp_path, f"models:\n  mine: {entry}\n")
    with pytest.raises(CatalogInvalid, match=f"{path}.*models.mine.*{says}") as raised:
        load_catalog(path)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models:\n  a: {hub: x/y}\n  a: {hub: x/z}\n", "line 3: 'a' is there twice"),
        ("models:\n  a: {hub: x/y}\n  A: {hub: x/z}\n", "'A' is there twice"),
        ("models:\n  a: {hub: x/y}\n  b: {hub: x/z, aliases: [a]}\n", "'a' is there twice"),
        ("- a\n", "not a mapping with `models`"),
        ("", "not a mapping with `models`"),
        ("models: [", "not YAML"),
        ("models: {}\nmodel: {}\n", "model: unknown field"),
    ],
)
def test_wrong_file_is_told(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogInvalid, match=says):
        load_catalog(catalog_file(tmp_path, text))


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CatalogInvalid, match=r"nowhere.yaml cannot be read"):
        load_catalog(tmp_path / "nowhere.yaml")
