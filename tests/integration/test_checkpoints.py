"""Checkpoints fetched over the real S3 protocol: in ranges, once, whole, and of one version."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batch_pipelines.models.checkpoints import Remotes, fetch_checkpoint, identity, peek_checkpoint
from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound, ModelUnavailable
from batch_pipelines.models.file_choice import Wanted
from batch_pipelines.models.hub import Hub
from batch_pipelines.models.objects import RANGE_BYTES
from batch_pipelines.models.source import ModelSource
from tests.support.processes import wait_until
from tests.support.s3 import S3Server, s3_environment
from tests.unit.models.checkpoint_files import NEEDED, index, tensors, tiny_checkpoint
from tests.unit.models.store_gate import StoreGate, gate_before

WAIT_SEC = 30
BIG = "model-00001-of-00001.safetensors"
FETCH = """
import sys
from pathlib import Path
from batch_pipelines.models.checkpoints import Remotes, fetch_checkpoint
from batch_pipelines.models.file_choice import Wanted
from batch_pipelines.models.hub import Hub
from batch_pipelines.models.source import ModelSource

def check(): pass

source = ModelSource("objects", sys.argv[1])
print(fetch_checkpoint(source, Path(sys.argv[2]), Remotes(Hub()), Wanted(), check=check, log=lambda _: None))
"""


@dataclass(frozen=True)
class Bucket:
    """A bucket of a test's own, with a checkpoint's prefix in it."""

    s3: S3Server
    name: str
    gate: StoreGate

    @property
    def source(self) -> ModelSource:
        return ModelSource("objects", f"s3://{self.name}/models/tiny")

    def put(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            self.s3.client().put_object(Bucket=self.name, Key=f"models/tiny/{name}", Body=data)

    def fetch(self, cache: Path) -> Path:
        return fetch_checkpoint(
            self.source, cache, Remotes(Hub()), Wanted(), check=lambda: None, log=lambda _: None
        )


@pytest.fixture
def bucket(s3: S3Server) -> Iterator[Bucket]:
    name = f"models-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(name)
    with gate_before(s3.endpoint) as gate, s3_environment(S3Server(gate.endpoint)):
        yield Bucket(s3, name, gate)


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def big_checkpoint() -> dict[str, bytes]:
    """One shard that takes three ranges."""
    weights = tensors(2 * RANGE_BYTES, os.urandom(1))
    return {"config.json": b"{}", "model.safetensors.index.json": index(BIG), BIG: weights}


def test_large_object_comes_in_ranges_at_the_same_time(bucket: Bucket, tmp_path: Path) -> None:
    files = big_checkpoint()
    bucket.put(files)
    together = threading.Barrier(3)

    def meet(name: str) -> None:
        if name == BIG:
            together.wait(WAIT_SEC)

    bucket.gate.before = meet
    folder = bucket.fetch(tmp_path)
    assert (folder / BIG).read_bytes() == files[BIG]
    size = len(files[BIG])
    ranges = sorted(asked or "" for name, asked in bucket.gate.reads if name == BIG)
    assert ranges == sorted(
        f"bytes={start}-{min(start + RANGE_BYTES, size) - 1}" for start in range(0, size, RANGE_BYTES)
    )


def test_object_written_in_parts_is_fetched_too(bucket: Bucket, tmp_path: Path) -> None:
    """Its tag is no MD5; lengths and its own header are checked."""
    bucket.put({"config.json": b"{}"})
    weights = tensors(6 * 2**20)
    client, key = bucket.s3.client(), "models/tiny/model.safetensors"
    upload = client.create_multipart_upload(Bucket=bucket.name, Key=key)["UploadId"]
    tags = [
        client.upload_part(Bucket=bucket.name, Key=key, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        for number, body in ((1, weights[: 5 * 2**20]), (2, weights[5 * 2**20 :]))
    ]
    client.complete_multipart_upload(
        Bucket=bucket.name,
        Key=key,
        UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(tags, 1)]},
    )
    assert "-2" in client.head_object(Bucket=bucket.name, Key=key)["ETag"]
    assert (bucket.fetch(tmp_path) / "model.safetensors").read_bytes() == weights


def test_second_fetch_asks_only_for_the_listing(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    folder = bucket.fetch(tmp_path)
    assert visible(folder) == NEEDED
    assert bucket.gate.names() == sorted(NEEDED)
    bucket.gate.reads.clear()
    bucket.gate.listings = 0
    assert bucket.fetch(tmp_path) == folder
    assert bucket.gate.reads == []
    assert bucket.gate.listings == 1


def test_peek_reads_no_weights_and_identity_nothing(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    first = identity(bucket.source, Remotes(Hub()))
    assert bucket.gate.reads == []
    peek = peek_checkpoint(
        bucket.source, tmp_path, Remotes(Hub()), Wanted(), check=lambda: None, log=lambda _: None
    )
    assert peek is not None
    assert (peek.folder / "config.json").is_file()
    assert not any(name.endswith(".safetensors") for name in bucket.gate.names())
    bucket.put({"model-00002-of-00002.safetensors": tensors(1000, b"\1")})
    assert identity(bucket.source, Remotes(Hub())) != first


def test_object_changed_in_place_gives_another_folder(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    first = bucket.fetch(tmp_path)
    bucket.put({"model-00002-of-00002.safetensors": tensors(1000, b"\1")})
    second = bucket.fetch(tmp_path)
    assert second != first
    assert (second / "model-00002-of-00002.safetensors").read_bytes() == tensors(1000, b"\1")
    assert (first / "model-00002-of-00002.safetensors").read_bytes() == tensors(1000)


def test_object_changed_under_way_is_fetched_in_its_new_version(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    changes = [tiny_checkpoint(b"\1")]

    def replace(name: str) -> None:
        if name.startswith("model-") and changes:
            bucket.put(changes.pop())

    bucket.gate.before = replace
    folder = bucket.fetch(tmp_path)
    for number in (1, 2):
        name = f"model-{number:05}-of-00002.safetensors"
        assert (folder / name).read_bytes() == tensors(1000, b"\1")
    assert visible(tmp_path) == {folder.name}
    assert list((tmp_path / ".partial").iterdir()) == []


def test_object_that_keeps_changing_is_an_error_that_names_it(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    versions = iter(range(100))

    def replace(name: str) -> None:
        if name == "config.json":
            bucket.put({name: b'{"version": %d}' % next(versions)})

    bucket.gate.before = replace
    with pytest.raises(ModelUnavailable, match=r"tiny/config.json was replaced.*3 times in a row"):
        bucket.fetch(tmp_path)
    assert visible(tmp_path) == set()


def test_truncated_answer_is_asked_for_again_and_then_an_error(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    left = 2

    def cut(name: str, data: bytes) -> bytes:
        nonlocal left
        if name == "tokenizer.model" and left:
            left -= 1
            return data[:-1]
        return data

    bucket.gate.change = cut
    assert visible(bucket.fetch(tmp_path / "twice")) == NEEDED
    left = 100
    with pytest.raises(ModelUnavailable, match=r"tiny/tokenizer.model.*tried 3 times") as raised:
        bucket.fetch(tmp_path / "always")
    assert "X-Amz" not in str(raised.value)
    assert visible(tmp_path / "always") == set()


def test_damaged_answer_is_noticed_by_its_md5(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    damages = [b"\xff", b"\xfe"]

    def damage(name: str, data: bytes) -> bytes:
        return damages.pop() + data[1:] if name == "tokenizer.model" and damages else data

    bucket.gate.change = damage
    with pytest.raises(ModelUnavailable, match=r"tiny/tokenizer.model arrived damaged twice.*md5:"):
        bucket.fetch(tmp_path)
    damages.append(b"\xff")
    folder = bucket.fetch(tmp_path)
    assert (folder / "tokenizer.model").read_bytes() == tiny_checkpoint()["tokenizer.model"]


def test_truncated_upload_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put({**tiny_checkpoint(), "model-00002-of-00002.safetensors": tensors(1000)[:-100]})
    with pytest.raises(CheckpointRefused, match=r"model-00002-of-00002.safetensors has .* upload it again"):
        bucket.fetch(tmp_path)


def test_missing_bucket_and_prefix_are_not_found(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no object below s3://"):
        bucket.fetch(tmp_path)
    source = ModelSource("objects", "s3://no-such-bucket-here/tiny")
    with pytest.raises(ModelNotFound, match="s3://no-such-bucket-here"):
        fetch_checkpoint(source, tmp_path, Remotes(Hub()), Wanted(), check=lambda: None, log=lambda _: None)


def start(bucket: Bucket, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FETCH, bucket.source.uri, str(cache)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_fetch_each_object_once(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    both = threading.Event()

    def wait_for_both(_: str) -> None:
        wait_until(lambda: bucket.gate.listings == 2, within_sec=WAIT_SEC)
        both.set()

    bucket.gate.before = wait_for_both
    processes = [start(bucket, tmp_path) for _ in range(2)]
    folders = {process.communicate(timeout=2 * WAIT_SEC)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert both.is_set()
    (folder,) = folders
    assert visible(Path(folder)) == NEEDED
    assert bucket.gate.names() == sorted(NEEDED)


def test_killed_process_leaves_its_finished_files_to_the_next(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tiny_checkpoint())
    last = "model-00002-of-00002.safetensors"
    reached, killed = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == last:
            reached.set()
            killed.wait(WAIT_SEC)

    bucket.gate.before = hold
    process = start(bucket, tmp_path)
    assert reached.wait(WAIT_SEC)
    first = "model-00001-of-00002.safetensors"
    wait_until(lambda: list((tmp_path / ".partial").glob(f"*/{first}")) != [], within_sec=WAIT_SEC)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT_SEC)
    killed.set()
    assert visible(tmp_path) == set()
    bucket.gate.reads.clear()
    assert visible(bucket.fetch(tmp_path)) == NEEDED
    assert bucket.gate.names() == [last]
