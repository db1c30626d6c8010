"""The cache of checkpoints: locks, last use, and what may be removed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from batch_pipelines.models.cache import CacheEntry, evict, in_use, require_space
from batch_pipelines.models.errors import ModelUnavailable

NOW = timedelta(0)
BYTES = 2**20


def filled(cache: Path, name: str, *, used: float, partial: bool = False) -> CacheEntry:
    """An entry with a file of `BYTES`, last used at that time."""
    entry = CacheEntry(cache, name)
    folder = entry.partial if partial else entry.folder
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x" * BYTES)
    with entry.lock(shared=False):
        pass
    os.utime(cache / ".locks" / name, (used, used))
    return entry


def names(paths: Iterable[Path]) -> set[str]:
    return {path.name for path in paths if not path.name.startswith(".")}


def test_least_recently_used_goes_first_and_no_more_than_needed(tmp_path: Path) -> None:
    for number, name in enumerate(["newest", "oldest", "middle"]):
        filled(tmp_path, name, used=[300.0, 100.0, 200.0][number])
    assert evict(tmp_path, 2 * BYTES + BYTES // 2) == ["oldest"]
    assert names(tmp_path.iterdir()) == {"newest", "middle"}
    assert evict(tmp_path, 0) == ["middle", "newest"]
    assert names(tmp_path.iterdir()) == set()


def test_nothing_goes_while_the_cache_is_small_enough(tmp_path: Path) -> None:
    filled(tmp_path, "model", used=100.0)
    assert evict(tmp_path, 2 * BYTES) == []
    assert evict(tmp_path / "nowhere", 0) == []


def test_checkpoint_in_use_stays(tmp_path: Path) -> None:
    entry = filled(tmp_path, "model", used=100.0)
    with in_use(tmp_path, entry.folder):
        assert evict(tmp_path, 0, idle=NOW) == []
        assert entry.folder.is_dir()
    assert evict(tmp_path, 0, idle=NOW) == ["model"]


def test_use_counts_to_its_end(tmp_path: Path) -> None:
    entry = filled(tmp_path, "model", used=100.0)
    with in_use(tmp_path, entry.folder):
        os.utime(tmp_path / ".locks" / "model", (100.0, 100.0))
    assert entry.last_use > 100.0


def test_checkpoint_used_a_moment_ago_stays(tmp_path: Path) -> None:
    entry = filled(tmp_path, "model", used=100.0)
    entry.touch()
    assert evict(tmp_path, 0) == []
    assert entry.folder.is_dir()


def test_checkpoint_that_is_being_fetched_stays_and_an_abandoned_part_goes(tmp_path: Path) -> None:
    busy = filled(tmp_path, "busy", used=100.0, partial=True)
    filled(tmp_path, "abandoned", used=200.0, partial=True)
    with busy.lock(shared=False):
        assert evict(tmp_path, 0) == ["abandoned"]
    assert names((tmp_path / ".partial").iterdir()) == {"busy"}


def test_evicted_checkpoint_cannot_be_taken_into_use(tmp_path: Path) -> None:
    entry = filled(tmp_path, "model", used=100.0)
    evict(tmp_path, 0)
    with pytest.raises(ModelUnavailable, match="evicted"), in_use(tmp_path, entry.folder):
        pass


def test_folder_outside_the_cache_needs_no_keeping(tmp_path: Path) -> None:
    with in_use(tmp_path / "cache", tmp_path / "models" / "mine"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_readers_share_an_entry_and_a_writer_has_it_alone(tmp_path: Path) -> None:
    entry = CacheEntry(tmp_path, "model")
    with entry.lock(shared=True) as first, entry.lock(shared=True) as second:
        assert first
        assert second
        with entry.lock(shared=False) as writer:
            assert not writer
    with entry.lock(shared=False) as writer, entry.lock(shared=True) as reader:
        assert writer
        assert not reader


def test_part_beside_a_complete_checkpoint_goes_with_it(tmp_path: Path) -> None:
    entry = filled(tmp_path, "model", used=100.0)
    filled(tmp_path, "model", used=100.0, partial=True)
    assert evict(tmp_path, 0) == ["model"]
    assert not entry.folder.exists()
    assert not entry.partial.exists()


def test_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ModelUnavailable, match=r"file/cache cannot be written"),
        CacheEntry(tmp_path / "file" / "cache", "model").lock(shared=True),
    ):
        pass


def test_download_that_does_not_fit_is_told_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"s3://b/m needs 1,000,000,000.0 GB .* has .* GB free"):
        require_space(tmp_path, 10**18, "s3://b/m")
    require_space(tmp_path, 1, "s3://b/m")
