"""ObjectStorage over the real S3 protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from batch_pipelines.storage.object_storage import ObjectNotFound, ObjectStorage, StorageError
from tests.support.s3 import S3Server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(name)
    return name


@pytest.fixture
def storage(bucket: str) -> ObjectStorage:
    return ObjectStorage(roots=[f"s3://{bucket}"])


def test_object_round_trip(storage: ObjectStorage, bucket: str) -> None:
    uri = f"s3://{bucket}/a b/é%20#?.json"
    storage.write(uri, b"1")
    assert storage.read(uri) == b"1"
    assert [info.uri for info in storage.list(f"s3://{bucket}")] == [uri]
    assert storage.head(uri).etag
    storage.delete(uri)
    storage.delete(uri)
    assert not storage.exists(uri)
    with pytest.raises(ObjectNotFound):
        storage.read(uri)


def test_of_many_creates_at_once_exactly_one_wins(storage: ObjectStorage, bucket: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: storage.create(f"s3://{bucket}/once", b"%d" % n), range(8)))
    assert sum(won) == 1
    assert storage.read(f"s3://{bucket}/once") == b"%d" % won.index(True)


def test_stream_goes_up_in_parts_and_comes_back_in_ranges(
    storage: ObjectStorage, bucket: str, s3: S3Server
) -> None:
    uri = f"s3://{bucket}/big"
    chunks = [bytes([n]) * 999_999 for n in range(60)]
    assert storage.write_stream(uri, iter(chunks)) == 60 * 999_999
    assert s3.client().head_object(Bucket=bucket, Key="big")["ETag"].endswith('-4"')
    with storage.open_reader(uri) as reader:
        assert reader.read() == b"".join(chunks)
    with storage.open_reader(uri) as reader:
        reader.read(1)
        storage.write(uri, b"new")
        with pytest.raises(StorageError, match="replaced"):
            reader.read()


@pytest.mark.parametrize("size", [10, 9_000_000])
def test_failed_stream_leaves_no_object_and_no_upload(
    storage: ObjectStorage, bucket: str, s3: S3Server, size: int
) -> None:
    pending: list[str] = []

    def chunks() -> Iterator[bytes]:
        for _ in range(6):
            yield b"x" * size
        pending.extend(s3.unfinished_uploads(bucket))
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        storage.write_stream(f"s3://{bucket}/a", chunks())
    assert pending == (["a"] if size > 10 else [])
    assert s3.keys(bucket) == []
    assert s3.unfinished_uploads(bucket) == []


def test_list_has_folder_semantics_and_pages(storage: ObjectStorage, bucket: str) -> None:
    names = [f"a/b/{n:04}" for n in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: storage.write(f"s3://{bucket}/{name}", b""), [*names, "a/bc", "a/b"]))
    assert [info.uri for info in storage.list(f"s3://{bucket}/a/b")] == [
        f"s3://{bucket}/{name}" for name in names
    ]


@pytest.mark.usefixtures("s3")
def test_missing_bucket_is_named_as_the_reason() -> None:
    storage = ObjectStorage(roots=["s3://no-such-bucket"])
    with pytest.raises(StorageError, match="NoSuchBucket"):
        storage.write("s3://no-such-bucket/a", b"1")
    with pytest.raises(StorageError, match="NoSuchBucket") as caught:
        list(storage.list("s3://no-such-bucket/a"))
    assert "list-type" not in str(caught.value)
    assert "list-type" not in str(caught.value.__cause__)
