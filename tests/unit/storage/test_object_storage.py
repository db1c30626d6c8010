"""Objects in local folders and in memory: both must behave alike."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batch_pipelines.storage.object_storage import InvalidPath, ObjectNotFound, ObjectStorage, StorageError


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return (tmp_path / "root").as_uri()
    return f"memory://test/{uuid.uuid4().hex}"


@pytest.fixture
def storage(root: str) -> ObjectStorage:
    return ObjectStorage(roots=[root])


def uris(storage: ObjectStorage, prefix: str) -> list[str]:
    return [info.uri for info in storage.list(prefix)]


def test_written_object_is_read_back(storage: ObjectStorage, root: str) -> None:
    storage.write(f"{root}/deep/er/a", b"one")
    storage.write(f"{root}/deep/er/a", b"two!")
    assert storage.read(f"{root}/deep/er/a") == b"two!"
    info = storage.head(f"{root}/deep/er/a")
    assert (info.uri, info.size) == (f"{root}/deep/er/a", 4)
    assert abs(info.last_modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_etag_changes_with_the_object(storage: ObjectStorage, root: str) -> None:
    storage.write(f"{root}/a", b"1")
    before = storage.head(f"{root}/a").etag
    assert before == storage.head(f"{root}/a").etag
    storage.write(f"{root}/a", b"22")
    assert storage.head(f"{root}/a").etag not in (None, before)


def test_missing_object_is_not_found(storage: ObjectStorage, root: str) -> None:
    for method in (storage.head, storage.read, storage.open_reader):
        with pytest.raises(ObjectNotFound, match="nowhere"):
            method(f"{root}/nowhere")
    assert not storage.exists(f"{root}/nowhere")
    storage.delete(f"{root}/nowhere")


def test_deleted_object_is_gone(storage: ObjectStorage, root: str) -> None:
    storage.write(f"{root}/a", b"1")
    assert storage.exists(f"{root}/a")
    storage.delete(f"{root}/a")
    assert not storage.exists(f"{root}/a")


def test_second_create_is_refused(storage: ObjectStorage, root: str) -> None:
    assert storage.create(f"{root}/x/a", b"first")
    assert not storage.create(f"{root}/x/a", b"second")
    assert storage.read(f"{root}/x/a") == b"first"


def test_of_many_creates_at_once_exactly_one_wins(storage: ObjectStorage, root: str) -> None:
    start = threading.Barrier(8)

    def attempt(number: int) -> bool:
        start.wait()
        return storage.create(f"{root}/new/folder/a", b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert sum(won) == 1
    assert storage.read(f"{root}/new/folder/a") == b"%d" % won.index(True)


def test_stream_of_any_length_is_written_whole(storage: ObjectStorage, root: str) -> None:
    assert storage.write_stream(f"{root}/none", []) == 0
    assert storage.read(f"{root}/none") == b""
    chunks = [bytes([n % 251]) * 700_000 for n in range(60)]
    assert storage.write_stream(f"{root}/big", iter(chunks)) == 42_000_000
    assert storage.read(f"{root}/big") == b"".join(chunks)
    with storage.open_reader(f"{root}/big") as reader:
        assert reader.read(700_001) == chunks[0] + chunks[1][:1]
        assert len(reader.read()) == 42_000_000 - 700_001


@pytest.mark.parametrize("size", [10, 3_000_000, 20_000_000])
def test_failed_stream_leaves_nothing_and_its_error_is_untouched(
    storage: ObjectStorage, root: str, tmp_path: Path, size: int
) -> None:
    class MyError(Exception):
        pass

    error = MyError("mine")

    def chunks() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * size
        raise error

    with pytest.raises(MyError) as caught:
        storage.write_stream(f"{root}/a", chunks())
    assert caught.value is error
    assert uris(storage, root) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_failed_stream_keeps_the_old_object(storage: ObjectStorage, root: str) -> None:
    storage.write(f"{root}/a", b"old")

    def chunks() -> Iterator[bytes]:
        yield b"x" * 20_000_000
        raise OSError("source broke")

    with pytest.raises(OSError, match="source broke"):
        storage.write_stream(f"{root}/a", chunks())
    assert storage.read(f"{root}/a") == b"old"


def test_stream_in_flight_is_not_listed_and_may_read_the_storage(storage: ObjectStorage, root: str) -> None:
    storage.write(f"{root}/source", b"s" * 1_000_000)
    seen = []

    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield storage.read(f"{root}/source")
        seen.extend(uris(storage, root))

    storage.write_stream(f"{root}/target", chunks())
    assert seen == [f"{root}/source"]
    assert uris(storage, root) == [f"{root}/source", f"{root}/target"]


def test_list_gives_the_folder_in_key_order(storage: ObjectStorage, root: str) -> None:
    for name in ["a/b/c", "a/bc", "a/b/d/e", "a/B", "a/b-c", "a/b", "a/é", "a/z"]:
        if name != "a/b" or root.startswith("memory"):
            storage.write(f"{root}/{name}", name.encode())
    assert uris(storage, f"{root}/a/b") == [f"{root}/a/b/c", f"{root}/a/b/d/e"]
    assert uris(storage, f"{root}/a/b/") == [f"{root}/a/b/c", f"{root}/a/b/d/e"]
    names = [uri.removeprefix(f"{root}/a/") for uri in uris(storage, f"{root}/a") if uri != f"{root}/a/b"]
    assert names == ["B", "b-c", "b/c", "b/d/e", "bc", "z", "é"]
    assert uris(storage, f"{root}/missing") == []


def test_names_with_odd_characters_survive(storage: ObjectStorage, root: str, tmp_path: Path) -> None:
    names = ["sp ace", "per%cent", "ha#sh", "que?stion", "a+b", "ü", "a:b", "{x}", "a\\b"]
    base = str(tmp_path / "root") if root.startswith("file") else root
    for name in names:
        storage.write(f"{base}/{name}", name.encode())
    listed = list(storage.list(base))
    assert sorted(storage.read(info.uri).decode() for info in listed) == sorted(names)
    if root.startswith("file"):
        assert sorted(path.name for path in (tmp_path / "root").iterdir()) == sorted(names)


def test_object_needs_a_key() -> None:
    everything = ObjectStorage(roots=["memory://test", "/"])
    for uri in ("memory://test", "/"):
        with pytest.raises(InvalidPath):
            everything.read(uri)
        with pytest.raises(InvalidPath):
            everything.write(uri, b"")


def test_reader_of_a_replaced_object_fails_instead_of_mixing_versions() -> None:
    root = f"memory://test/{uuid.uuid4().hex}"
    storage = ObjectStorage(roots=[root])
    storage.write_stream(f"{root}/a", [b"1" * 10_000_000] * 3)
    with storage.open_reader(f"{root}/a") as reader:
        assert reader.read(10) == b"1" * 10
        storage.write_stream(f"{root}/a", [b"2" * 10_000_000] * 3)
        with pytest.raises(StorageError, match="replaced"):
            reader.read()


def test_writing_to_a_folder_leaves_no_litter(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    storage = ObjectStorage(roots=[str(tmp_path)])
    for write in (
        lambda uri: storage.write(uri, b"1"),
        lambda uri: storage.write_stream(uri, [b"1" * 20_000_000]),
    ):
        with pytest.raises(StorageError, match="is a folder"):
            write(str(tmp_path / "folder"))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_folders_and_devices_are_not_objects(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    storage = ObjectStorage(roots=[str(tmp_path)])
    for name in ("folder", "pipe"):
        with pytest.raises(ObjectNotFound):
            storage.open_reader(str(tmp_path / name))


def test_failure_names_the_object_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = ObjectStorage(roots=[str(tmp_path)])
    with pytest.raises(
        StorageError, match=r"cannot write file:///.*/file/below: .*[Nn]ot a directory"
    ) as caught:
        storage.write(str(tmp_path / "file" / "below"), b"1")
    assert caught.value.__cause__ is not None
    assert "Debug source" not in str(caught.value)


def test_store_without_configuration_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StorageError, match=r"cannot connect to az://container: .*[Aa]ccount"):
        ObjectStorage(roots=["az://container"]).read("az://container/x")
