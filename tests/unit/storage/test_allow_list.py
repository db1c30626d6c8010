"""Nothing outside the allowed roots is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batch_pipelines.storage.object_storage import InvalidPath, ObjectStorage, PathNotAllowed


@pytest.fixture
def storage(tmp_path: Path) -> ObjectStorage:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_bytes(b"secret")
    roots = ["in", "s3://bucket/team", "https://host/inputs", "memory://open"]
    return ObjectStorage(roots=roots, base_dir=tmp_path)


@pytest.mark.parametrize(
    "uri",
    [
        "out/secret",
        "inside",
        "s3://bucket/team2/x",
        "s3://bucket/Team/x",
        "s3://bucket",
        "s3://bucket2/team/x",
        "gs://bucket/team/x",
        "https://host/inputs2/x",
        "https://host:8443/inputs/x",
        "http://host/inputs/x",
        "https://host.evil.example/inputs/x",
        "/etc/passwd",
        "file:///etc/passwd",
    ],
)
def test_address_outside_the_roots_is_refused_and_the_roots_are_named(
    storage: ObjectStorage, uri: str
) -> None:
    with pytest.raises(PathNotAllowed, match=r"s3://bucket/team.*https://host/inputs"):
        storage.check(uri)


@pytest.mark.parametrize("uri", ["in/../out/secret", "in/%2e%2e/out/secret", "s3://bucket/team/../team2/x"])
def test_climbing_out_is_refused(storage: ObjectStorage, uri: str) -> None:
    with pytest.raises((InvalidPath, PathNotAllowed)):
        storage.check(uri)


def test_allowed_address_comes_back_canonical(storage: ObjectStorage, tmp_path: Path) -> None:
    assert storage.check("in/a/") == f"file://{tmp_path}/in/a"
    assert storage.check("in") == f"file://{tmp_path}/in"
    assert storage.check("S3://bucket/team/x") == "s3://bucket/team/x"
    assert storage.check("https://HOST/inputs/x?sig=a%2Fb") == "https://host/inputs/x?sig=a%2Fb"
    assert storage.normalize("s3://elsewhere/x/") == "s3://elsewhere/x"


def test_link_out_of_a_root_is_refused(storage: ObjectStorage, tmp_path: Path) -> None:
    (tmp_path / "in" / "file").symlink_to(tmp_path / "out" / "secret")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "dangling").symlink_to(tmp_path / "out" / "new")
    for uri in ("in/file", "in/folder/secret", "in/folder/new/deeper", "in/dangling"):
        with pytest.raises(PathNotAllowed):
            storage.check(uri)
    assert list(storage.list("in")) == []


def test_link_made_after_the_first_check_is_seen(storage: ObjectStorage, tmp_path: Path) -> None:
    storage.check("in/a/b")
    (tmp_path / "in" / "a").symlink_to(tmp_path / "out")
    with pytest.raises(PathNotAllowed):
        storage.check("in/a/b")


def test_link_within_a_root_and_a_root_that_is_a_link_are_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"1")
    (tmp_path / "real" / "b").symlink_to("a")
    (tmp_path / "root").symlink_to("real")
    storage = ObjectStorage(roots=[str(tmp_path / "root")])
    assert storage.read(str(tmp_path / "root" / "b")) == b"1"
    assert [info.uri for info in storage.list(str(tmp_path / "root"))] == [
        f"file://{tmp_path}/root/a",
        f"file://{tmp_path}/root/b",
    ]


def test_loop_of_links_is_refused(storage: ObjectStorage, tmp_path: Path) -> None:
    (tmp_path / "in" / "a").symlink_to("b")
    (tmp_path / "in" / "b").symlink_to("a")
    with pytest.raises((InvalidPath, PathNotAllowed)):
        storage.check("in/a")


def test_every_method_checks_first(storage: ObjectStorage) -> None:
    uri = "memory://closed/x"
    calls: list[Callable[[], object]] = [
        lambda: storage.head(uri),
        lambda: storage.read(uri),
        lambda: storage.open_reader(uri),
        lambda: storage.write(uri, b""),
        lambda: storage.create(uri, b""),
        lambda: storage.write_stream(uri, []),
        lambda: storage.list(uri),
        lambda: storage.delete(uri),
        lambda: storage.exists(uri),
    ]
    for call in calls:
        with pytest.raises(PathNotAllowed):
            call()


def test_no_roots_allow_nothing() -> None:
    with pytest.raises(PathNotAllowed, match="allowed: none"):
        ObjectStorage(roots=[]).check("/tmp/x")
