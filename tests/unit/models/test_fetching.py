"""A checkpoint's way into the cache, whatever it comes from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from batch_pipelines.models.cache import CacheEntry
from batch_pipelines.models.errors import CheckpointRefused, ModelUnavailable
from batch_pipelines.models.fetching import Fetch, Part, obtain
from batch_pipelines.models.file_choice import RemoteFile, Wanted, choose
from batch_pipelines.models.objects import CheckpointChanged
from batch_pipelines.models.transfer import Job, Transfer
from tests.unit.models.checkpoint_files import NEEDED, index, tensors, tiny_checkpoint


class FakeRemote:
    """A remote checkpoint in memory, of which one file may fail to come."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.fetched: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.before: Callable[[str], None] = lambda _: None

    def jobs(self, files: Sequence[RemoteFile], folder: Path, transfer: Transfer) -> Iterator[Job]:
        for file in files:
            yield partial(self._fetch, file.name, folder, transfer)

    def _fetch(self, name: str, folder: Path, transfer: Transfer) -> None:
        self.before(name)
        if name in self.failing:
            raise self.failing[name]
        self.fetched.append(name)
        transfer.add(len(self.files[name]))
        (folder / name).write_bytes(self.files[name])


class Stopped(Exception):
    """What a run's own check raises."""


def fetch_of(
    remote: FakeRemote,
    cache: Path,
    *,
    part: Part = "whole",
    check: Callable[[], None] = lambda: None,
    log: Callable[[str], None] = lambda _: None,
) -> Fetch:
    listing = [RemoteFile(name, len(data)) for name, data in remote.files.items()]
    return Fetch(
        name="s3://b/m",
        checkpoint=remote,
        choose=lambda: choose(listing, Wanted(), "s3://b/m"),
        part=part,
        entry=CacheEntry(cache, "m-1"),
        check=check,
        log=log,
    )


@pytest.fixture
def remote() -> FakeRemote:
    return FakeRemote(tiny_checkpoint())


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_whole_checkpoint_appears_at_once_and_is_fetched_once(remote: FakeRemote, tmp_path: Path) -> None:
    fetch = fetch_of(remote, tmp_path)

    def still_absent(_: str) -> None:
        assert not fetch.entry.folder.exists()

    remote.before = still_absent
    obtain(fetch)
    obtain(fetch)
    assert visible(fetch.entry.folder) == NEEDED
    assert sorted(remote.fetched) == sorted(NEEDED)
    assert visible(tmp_path) == {"m-1"}
    assert not fetch.entry.partial.exists()


def test_metadata_come_without_weights_and_say_how_large_those_are(
    remote: FakeRemote, tmp_path: Path
) -> None:
    fetch = fetch_of(remote, tmp_path, part="metadata")
    obtain(fetch)
    assert visible(fetch.entry.folder) == {name for name in NEEDED if not name.endswith(".safetensors")}
    size = 2 * len(tensors(1000))
    assert f'"weight_bytes":{size}' in (fetch.entry.folder / ".checkpoint.json").read_text()


def test_interrupted_fetch_goes_on_after_the_finished_files(remote: FakeRemote, tmp_path: Path) -> None:
    remote.failing["model-00002-of-00002.safetensors"] = ModelUnavailable("the network is down")
    fetch = fetch_of(remote, tmp_path)
    with pytest.raises(ModelUnavailable, match="the network is down"):
        obtain(fetch)
    assert not fetch.entry.folder.exists()
    before = list(remote.fetched)
    assert "config.json" in before
    remote.failing.clear()
    obtain(fetch)
    assert sorted(remote.fetched) == sorted(NEEDED)
    assert visible(fetch.entry.folder) == NEEDED


def test_file_of_another_length_is_not_a_finished_one(remote: FakeRemote, tmp_path: Path) -> None:
    fetch = fetch_of(remote, tmp_path)
    fetch.entry.partial.mkdir(parents=True)
    (fetch.entry.partial / "config.json").write_bytes(b"{")
    obtain(fetch)
    assert (fetch.entry.folder / "config.json").read_bytes() == remote.files["config.json"]


def test_what_check_raises_ends_the_fetch_and_leaves_nothing_complete(
    remote: FakeRemote, tmp_path: Path
) -> None:
    def check() -> None:
        raise Stopped

    fetch = fetch_of(remote, tmp_path, check=check)
    with pytest.raises(Stopped):
        obtain(fetch)
    assert not fetch.entry.folder.exists()
    with fetch.entry.lock(shared=False) as free:
        assert free


def test_checkpoint_that_was_changed_leaves_nothing(remote: FakeRemote, tmp_path: Path) -> None:
    remote.failing["tokenizer.json"] = CheckpointChanged("s3://b/m/tokenizer.json was replaced")
    fetch = fetch_of(remote, tmp_path)
    with pytest.raises(CheckpointChanged):
        obtain(fetch)
    assert not fetch.entry.folder.exists()
    assert not fetch.entry.partial.exists()


@pytest.mark.parametrize("part", ["whole", "metadata"])
def test_missing_shard_is_told_before_any_weights_are_fetched(part: Part, tmp_path: Path) -> None:
    files = tiny_checkpoint()
    del files["model-00002-of-00002.safetensors"]
    remote = FakeRemote(files)
    with pytest.raises(CheckpointRefused, match=r"incomplete.*model-00002-of-00002.*upload interrupted"):
        obtain(fetch_of(remote, tmp_path, part=part))
    assert not any(name.endswith(".safetensors") for name in remote.fetched)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (tensors(1000)[:-1], "has 1,073 bytes and needs 1,074 by its own header"),
        (tensors(1000) + b"x", "needs"),
        (b"short", "has no safetensors header"),
        (b"\xff" * 100, "has no safetensors header"),
        (b"\x02" + b"\0" * 7 + b"[]", "has no safetensors header"),
    ],
)
def test_truncated_weights_are_refused_with_both_lengths(weights: bytes, says: str, tmp_path: Path) -> None:
    remote = FakeRemote({"config.json": b"{}", "model.safetensors": weights})
    fetch = fetch_of(remote, tmp_path)
    with pytest.raises(CheckpointRefused, match=f"s3://b/m: model.safetensors .*{says}.*upload it"):
        obtain(fetch)
    assert not fetch.entry.folder.exists()
    assert not fetch.entry.partial.exists()


def test_index_that_is_none_is_refused(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": tensors(1), "model.safetensors.index.json": b"[]"}
    with pytest.raises(CheckpointRefused, match="is not an index of weights"):
        obtain(fetch_of(FakeRemote(files), tmp_path))


def test_index_of_files_that_were_not_chosen_is_no_fault(tmp_path: Path) -> None:
    files = {
        "config.json": b"{}",
        "consolidated.safetensors": tensors(1),
        "model.safetensors": tensors(1),
        "model.safetensors.index.json": index("model.safetensors"),
    }
    fetch = fetch_of(FakeRemote(files), tmp_path)
    obtain(fetch)
    assert "consolidated.safetensors" in visible(fetch.entry.folder)


def test_second_one_waits_for_the_first_and_fetches_nothing(remote: FakeRemote, tmp_path: Path) -> None:
    fetching, waiting = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "config.json":
            fetching.set()
            assert waiting.wait(30)

    def told(line: str) -> None:
        if "another process" in line:
            waiting.set()

    remote.before = hold
    second = FakeRemote(remote.files)
    first = threading.Thread(target=obtain, args=(fetch_of(remote, tmp_path),))
    first.start()
    assert fetching.wait(30)
    obtain(fetch_of(second, tmp_path, log=told))
    first.join()
    assert second.fetched == []
    assert visible(tmp_path / "m-1") == NEEDED


def test_waiting_can_be_given_up(remote: FakeRemote, tmp_path: Path) -> None:
    def check() -> None:
        raise Stopped

    fetch = fetch_of(remote, tmp_path, check=check)
    with fetch.entry.lock(shared=False), pytest.raises(Stopped):
        obtain(fetch)


def test_disk_that_is_full_is_told(remote: FakeRemote, tmp_path: Path) -> None:
    remote.failing["config.json"] = OSError(28, "No space left on device")
    with pytest.raises(ModelUnavailable, match=r"s3://b/m could not be written to .*No space left"):
        obtain(fetch_of(remote, tmp_path))


def test_checkpoint_larger_than_the_disk_is_told_before_anything_is_fetched(tmp_path: Path) -> None:
    remote = FakeRemote({"config.json": b"{}"})
    fetch = fetch_of(remote, tmp_path)
    huge = [RemoteFile("config.json", 2), RemoteFile("model.safetensors", 10**18)]
    fetch = Fetch(
        fetch.name,
        remote,
        lambda: choose(huge, Wanted(), fetch.name),
        "whole",
        fetch.entry,
        fetch.check,
        fetch.log,
    )
    with pytest.raises(ModelUnavailable, match="GB free"):
        obtain(fetch)
    assert remote.fetched == []
