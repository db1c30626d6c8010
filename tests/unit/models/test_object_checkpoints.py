"""Checkpoints in an object store, fetched from one in memory; over S3 they are in the integration tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from batch_pipelines.models.checkpoints import (
    Remotes,
    fetch_checkpoint,
    identity,
    peek_checkpoint,
    provide_model,
)
from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound, ModelUnavailable
from batch_pipelines.models.file_choice import RemoteFile, Wanted
from batch_pipelines.models.hub import Hub
from batch_pipelines.models.objects import ObjectCheckpoint
from batch_pipelines.models.source import ModelSource
from batch_pipelines.storage.object_storage import ObjectStorage
from batch_pipelines.storage.stores import Stores
from tests.unit.models.checkpoint_files import NEEDED, tensors, tiny_checkpoint

REMOTES = Remotes(Hub())


def nothing() -> None:
    pass


def ignore(_: str) -> None:
    pass


class Prefix:
    """A prefix of its own in the memory store."""

    def __init__(self) -> None:
        self.uri = f"memory://models/{uuid.uuid4().hex}/tiny"
        self.store = ObjectStorage(roots=["memory://models"])
        self.source = ModelSource("objects", self.uri)

    def put(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            self.store.write(f"{self.uri}/{name}", data)

    def fetch(self, cache: Path, *, wanted: Wanted | None = None) -> Path:
        return fetch_checkpoint(self.source, cache, REMOTES, wanted or Wanted(), check=nothing, log=ignore)


@pytest.fixture
def prefix() -> Prefix:
    prefix = Prefix()
    prefix.put(tiny_checkpoint())
    return prefix


def visible(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_fetched_folder_has_what_an_engine_needs_byte_for_byte(prefix: Prefix, tmp_path: Path) -> None:
    folder = prefix.fetch(tmp_path)
    assert folder.parent == tmp_path
    assert folder.name.startswith("tiny-")
    assert visible(folder) == NEEDED
    for name in NEEDED:
        assert (folder / name).read_bytes() == tiny_checkpoint()[name]


def test_same_version_is_the_same_folder_and_another_is_another(prefix: Prefix, tmp_path: Path) -> None:
    first = prefix.fetch(tmp_path)
    assert prefix.fetch(tmp_path) == first
    prefix.put({"README.md": b"changed", "optimizer.pt": b"changed"})
    assert prefix.fetch(tmp_path) == first
    prefix.put({"config.json": b'{"other": 1}'})
    second = prefix.fetch(tmp_path)
    assert second != first
    assert (second / "config.json").read_bytes() == b'{"other": 1}'
    assert (first / "config.json").read_bytes() == tiny_checkpoint()["config.json"]


def test_code_is_in_a_folder_of_its_own(prefix: Prefix, tmp_path: Path) -> None:
    plain = prefix.fetch(tmp_path)
    trusted = prefix.fetch(tmp_path, wanted=Wanted(include_code=True))
    assert visible(trusted) - visible(plain) == {"modeling_tiny.py"}


def test_files_in_subfolders_and_empty_ones_are_kept(prefix: Prefix, tmp_path: Path) -> None:
    prefix.put({"additional_chat_templates/rag.jinja": b"{{ x }}", "added_tokens.txt": b""})
    folder = prefix.fetch(tmp_path)
    assert (folder / "additional_chat_templates" / "rag.jinja").read_bytes() == b"{{ x }}"
    assert (folder / "added_tokens.txt").read_bytes() == b""


def test_neighbour_with_the_same_beginning_is_not_part_of_it(prefix: Prefix, tmp_path: Path) -> None:
    prefix.store.write(f"{prefix.uri}-large/generation_config.json", b"{}")
    assert visible(prefix.fetch(tmp_path)) == NEEDED


def test_peek_has_no_weights_and_knows_their_size(prefix: Prefix, tmp_path: Path) -> None:
    peek = peek_checkpoint(prefix.source, tmp_path, REMOTES, Wanted(), check=nothing, log=ignore)
    assert peek is not None
    assert visible(peek.folder) == {name for name in NEEDED if not name.endswith(".safetensors")}
    assert peek.weight_bytes == 2 * len(tensors(1000))
    assert peek.folder != prefix.fetch(tmp_path)


def test_peek_tells_what_could_not_be_loaded(tmp_path: Path) -> None:
    prefix = Prefix()
    prefix.put({"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    with pytest.raises(CheckpointRefused, match="pickle"):
        peek_checkpoint(prefix.source, tmp_path, REMOTES, Wanted(), check=nothing, log=ignore)


def test_empty_prefix_is_no_model(tmp_path: Path) -> None:
    prefix = Prefix()
    with pytest.raises(ModelNotFound, match=f"no object below {prefix.uri}/"):
        prefix.fetch(tmp_path)
    with pytest.raises(ModelNotFound, match="no object below"):
        identity(prefix.source, REMOTES)


def test_prefix_of_far_too_many_objects_is_no_checkpoint(
    prefix: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batch_pipelines.models.objects._MOST_OBJECTS", 5)
    with pytest.raises(ModelNotFound, match=r"more than 5 objects.*name the folder of one checkpoint"):
        prefix.fetch(tmp_path)


def test_identity_follows_the_weights_not_the_place(prefix: Prefix) -> None:
    first = identity(prefix.source, REMOTES)
    prefix.put({"README.md": b"changed"})
    assert identity(prefix.source, REMOTES) == first
    prefix.put({"model-00001-of-00002.safetensors": tensors(1000, b"\1")})
    assert identity(prefix.source, REMOTES) != first


def test_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"a" * 300_000)
    source = ModelSource("folder", folder.as_uri())
    cache = tmp_path / "cache"
    assert fetch_checkpoint(source, cache, REMOTES, Wanted(), check=nothing, log=ignore) == folder
    peek = peek_checkpoint(source, cache, REMOTES, Wanted(), check=nothing, log=ignore)
    assert peek is not None
    assert peek.folder == folder
    assert not cache.exists()
    first = identity(source, REMOTES)
    moved = folder.rename(tmp_path / "moved")
    source = ModelSource("folder", moved.as_uri())
    assert identity(source, REMOTES) == first
    (moved / "model.safetensors").write_bytes(b"a" * 299_999 + b"b")
    assert identity(source, REMOTES) != first


def test_provided_model_is_the_folder(prefix: Prefix, tmp_path: Path) -> None:
    model = provide_model(prefix.source, tmp_path, REMOTES, Wanted(), check=nothing, log=ignore)
    assert model.folder == prefix.fetch(tmp_path)
    assert model.model == str(model.folder)
    assert model.engine_args == {}


def rewriting(path: Path, *contents: bytes) -> Callable[[], None]:
    """A fetch that brings these contents one after the other."""
    left = list(contents)

    def fetch_again() -> None:
        path.write_bytes(left.pop(0))

    return fetch_again


@pytest.mark.parametrize(
    ("arrived", "again", "right"),
    [
        (b"hello", [], True),
        (b"h3llo", [b"hello"], True),
        (b"h3llo", [b"h3llo"], True),
        (b"h3llo", [b"he11o"], False),
    ],
    ids=["intact", "damaged once", "tags that are no MD5", "damaged twice"],
)
def test_md5_is_believed_unless_the_same_bytes_come_twice(
    arrived: bytes, again: list[bytes], right: bool, tmp_path: Path
) -> None:
    checkpoint = ObjectCheckpoint("memory://models/x", Stores(), ignore)
    file = RemoteFile(
        "config.json", 5, '"5d41402abc4b2a76b9719d911017c592"', "md5:5d41402abc4b2a76b9719d911017c592"
    )
    path = tmp_path / "config.json"
    path.write_bytes(arrived)
    assert checkpoint.is_right(file, path, rewriting(path, *again)) == right


def test_store_without_md5_tags_is_found_out_once_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    checkpoint = ObjectCheckpoint("memory://models/x", Stores(), told.append)
    path = tmp_path / "config.json"
    path.write_bytes(b"hello")
    file = RemoteFile("config.json", 5, '"x"', "md5:" + "0" * 32)
    assert checkpoint.is_right(file, path, rewriting(path, b"hello"))
    assert checkpoint.is_right(file, path, rewriting(path))
    assert len(told) == 1
    assert "not MD5" in told[0]


def test_store_that_cannot_be_connected_to_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    source = ModelSource("objects", "az://container/model")
    with pytest.raises(ModelUnavailable, match="az://container/model: cannot connect"):
        fetch_checkpoint(source, tmp_path, REMOTES, Wanted(), check=nothing, log=ignore)
