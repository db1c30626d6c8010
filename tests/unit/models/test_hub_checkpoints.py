"""Checkpoints on the model hub, fetched from a stand-in on loopback with the hub's own library."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import logging as hub_logging

from batch_pipelines.models.checkpoints import (
    CheckpointPeek,
    Remotes,
    fetch_checkpoint,
    identity,
    peek_checkpoint,
)
from batch_pipelines.models.errors import ModelNotFound, ModelUnavailable
from batch_pipelines.models.file_choice import Wanted
from batch_pipelines.models.hub import Hub, HubCheckpoint
from batch_pipelines.models.source import ModelSource
from batch_pipelines.models.transfer import Transfer, TransferStopped
from tests.unit.models.checkpoint_files import NEEDED, tiny_checkpoint
from tests.unit.models.stand_in_hub import COMMIT, NEXT_COMMIT, StandInHub, stand_in_hub

SECRET = "hf_verysecrettoken"
SOURCE = ModelSource("hub", "hf://owner/tiny")
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    with stand_in_hub(tiny_checkpoint()) as hub:
        yield hub


@pytest.fixture(autouse=True)
def users_own_hub_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of this machine is logged in to the hub; a deployment must not borrow that."""
    token = tmp_path / "users_token"
    token.write_text("hf_somebodyelse")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(token))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "users_cache"))


def nothing() -> None:
    pass


def fetch(
    hub: StandInHub,
    cache: Path,
    *,
    source: ModelSource = SOURCE,
    token: str | None = None,
    code: bool = False,
) -> Path:
    remotes = Remotes(Hub(hub.endpoint, token))
    return fetch_checkpoint(
        source, cache, remotes, Wanted(include_code=code), check=nothing, log=lambda _: None
    )


def peek(hub: StandInHub, cache: Path, *, required: bool = True) -> CheckpointPeek | None:
    remotes = Remotes(Hub(hub.endpoint))
    return peek_checkpoint(
        SOURCE, cache, remotes, Wanted(), check=nothing, log=lambda _: None, hub_required=required
    )


def visible(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {
        ".checkpoint.json"
    }


def test_fetched_folder_has_just_what_an_engine_needs(hub: StandInHub, tmp_path: Path) -> None:
    folder = fetch(hub, tmp_path)
    assert visible(folder) == NEEDED
    for name in NEEDED:
        assert (folder / name).read_bytes() == hub.files[name]
        assert not (folder / name).is_symlink()
    assert hub.fetched() == sorted(NEEDED)
    assert visible(fetch(hub, tmp_path, code=True)) == NEEDED | {"modeling_tiny.py"}


def test_second_fetch_asks_only_which_commit_it_is(hub: StandInHub, tmp_path: Path) -> None:
    first = fetch(hub, tmp_path)
    hub.requests.clear()
    assert fetch(hub, tmp_path) == first
    assert hub.requests == ["GET /api/models/owner/tiny"]


def test_pinned_commit_that_is_here_needs_no_hub(hub: StandInHub, tmp_path: Path) -> None:
    source = ModelSource("hub", SOURCE.uri, COMMIT)
    first = fetch(hub, tmp_path, source=source)
    hub.requests.clear()
    assert fetch(hub, tmp_path, source=source) == first
    assert identity(source, Remotes(Hub(hub.endpoint))) == COMMIT
    assert hub.requests == []


def test_branch_that_moved_is_another_folder(hub: StandInHub, tmp_path: Path) -> None:
    remotes = Remotes(Hub(hub.endpoint))
    source = ModelSource("hub", SOURCE.uri, "main")
    first, before = fetch(hub, tmp_path, source=source), identity(source, remotes)
    hub.commit = NEXT_COMMIT
    hub.files["config.json"] = b'{"new": 1}'
    second = fetch(hub, tmp_path, source=source)
    assert second != first
    assert (second / "config.json").read_bytes() == b'{"new": 1}'
    assert (before, identity(source, remotes)) == (COMMIT, NEXT_COMMIT)


def test_peek_brings_no_weights(hub: StandInHub, tmp_path: Path) -> None:
    found = peek(hub, tmp_path)
    assert found is not None
    assert visible(found.folder) == {name for name in NEEDED if not name.endswith(".safetensors")}
    assert found.weight_bytes == sum(len(hub.files[name]) for name in found.weights)
    assert not any(name.endswith(".safetensors") for name in hub.fetched())


@pytest.mark.parametrize("name", [SHARD, "config.json"])
def test_damaged_file_is_fetched_once_more(name: str, hub: StandInHub, tmp_path: Path) -> None:
    hub.damaged[name] = 1
    assert (fetch(hub, tmp_path) / name).read_bytes() == hub.files[name]
    assert hub.fetched().count(name) == 2


@pytest.mark.parametrize("name", [SHARD, "config.json"])
def test_file_that_stays_damaged_is_told_with_its_checksum(
    name: str, hub: StandInHub, tmp_path: Path
) -> None:
    hub.damaged[name] = 2
    with pytest.raises(ModelUnavailable, match=rf"{name} arrived damaged.*bytes.*checksum (sha256|git):"):
        fetch(hub, tmp_path)
    assert not list(tmp_path.glob("tiny-*"))


def test_file_that_is_cut_is_fetched_once_more_and_then_told(hub: StandInHub, tmp_path: Path) -> None:
    hub.cut[SHARD] = 1
    fetch(hub, tmp_path / "once")
    hub.cut[SHARD] = 2
    with pytest.raises(ModelUnavailable, match=rf"{SHARD} did not arrive whole"):
        fetch(hub, tmp_path / "twice")


def test_interrupted_fetch_does_not_fetch_finished_files_again(hub: StandInHub, tmp_path: Path) -> None:
    hub.damaged[SHARD] = 2
    with pytest.raises(ModelUnavailable):
        fetch(hub, tmp_path)
    hub.requests.clear()
    assert visible(fetch(hub, tmp_path)) == NEEDED
    assert "config.json" not in hub.fetched()
    assert SHARD in hub.fetched()


def test_deployments_token_opens_a_private_model(hub: StandInHub, tmp_path: Path) -> None:
    hub.token = SECRET
    assert visible(fetch(hub, tmp_path, token=SECRET)) == NEEDED


def test_token_of_this_machines_user_is_never_sent(
    hub: StandInHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    fetch(hub, tmp_path)
    assert hub.authorizations == {None}


def test_token_comes_from_the_environment_and_is_not_shown() -> None:
    hub = Hub.of_environment({"HF_TOKEN": SECRET, "HF_ENDPOINT": "http://hub"})
    assert hub == Hub("http://hub", SECRET)
    assert SECRET not in repr(hub)
    assert Hub.of_environment({"HF_TOKEN": "", "OTHER": "x"}) == Hub(None, None)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (None, "is private and the deployment has no HF_TOKEN"),
        ("hf_wrong", "the account of the deployment's HF_TOKEN may not read it"),
    ],
)
def test_private_model_is_not_found_and_the_token_is_not_told(
    token: str | None, says: str, hub: StandInHub, tmp_path: Path
) -> None:
    hub.token = SECRET
    with pytest.raises(ModelNotFound, match=rf"hf://owner/tiny does not exist.*{says} \(401\)") as raised:
        fetch(hub, tmp_path, token=token)
    assert raised.value.__cause__ is None
    assert "hf_wrong" not in str(raised.value)


def test_gated_model_is_told_what_to_do(hub: StandInHub, tmp_path: Path) -> None:
    hub.gated = True
    with pytest.raises(ModelNotFound, match=r"gated \(403\): accept its terms .*HF_TOKEN, which is not set"):
        fetch(hub, tmp_path)
    with pytest.raises(ModelNotFound, match=r"HF_TOKEN$"):
        fetch(hub, tmp_path, token=SECRET)


def test_unknown_repository_and_revision_are_told(hub: StandInHub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="hf://owner/other does not exist"):
        fetch(hub, tmp_path, source=ModelSource("hub", "hf://owner/other"))
    with pytest.raises(ModelNotFound, match="hf://owner/tiny has no revision 'v9'"):
        fetch(hub, tmp_path, source=ModelSource("hub", SOURCE.uri, "v9"))
    with pytest.raises(ModelNotFound, match="'a--b' cannot be the name"):
        fetch(hub, tmp_path, source=ModelSource("hub", "hf://a--b"))


def test_hub_that_fails_is_unavailable(hub: StandInHub, tmp_path: Path) -> None:
    hub.failing = 500
    with pytest.raises(
        ModelUnavailable, match=rf"the hub {hub.endpoint} cannot be reached, or fails \(500\)"
    ):
        fetch(hub, tmp_path)


def test_mirror_that_tells_names_only_is_told(hub: StandInHub, tmp_path: Path) -> None:
    hub.plain = True
    with pytest.raises(ModelUnavailable, match=r"does not tell the length and hash of config.json"):
        fetch(hub, tmp_path)


def test_hub_that_is_not_there_is_unavailable_and_a_peek_can_do_without(tmp_path: Path) -> None:
    with stand_in_hub({}) as gone:
        pass
    with pytest.raises(ModelUnavailable, match=r"cannot be reached, or fails \(ConnectError\)"):
        peek(gone, tmp_path)
    assert peek(gone, tmp_path, required=False) is None


def test_offline_deployment_is_told_what_to_do(
    hub: StandInHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable, match=r"HF_HUB_OFFLINE is set.*folder of models"):
        fetch(hub, tmp_path)
    assert hub.requests == []


def test_fetch_that_is_given_up_is_taken_up_again(hub: StandInHub, tmp_path: Path) -> None:
    class GivenUp(Exception):
        pass

    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise GivenUp

    remotes = Remotes(Hub(hub.endpoint))
    with pytest.raises(GivenUp):
        fetch_checkpoint(SOURCE, tmp_path, remotes, Wanted(), check=check, log=lambda _: None)
    assert not list(tmp_path.glob("tiny-*"))
    assert visible(fetch(hub, tmp_path)) == NEEDED


class CountingTransfer(Transfer):
    """Remembers what arrived; may stop at the first bytes."""

    def __init__(self, *, stops: bool = False) -> None:
        super().__init__(0, "test", lambda _: None)
        self.counts: list[int] = []
        self.stops = stops

    def add(self, count: int) -> None:
        if count and self.stops:
            raise TransferStopped
        self.counts.append(count)


def run_job(hub: StandInHub, name: str, folder: Path, transfer: Transfer) -> None:
    checkpoint = HubCheckpoint(SOURCE, Hub(hub.endpoint))
    (file,) = (file for file in checkpoint.files() if file.name == name)
    (job,) = checkpoint.jobs([file], folder, transfer)
    job()


def test_bytes_are_counted_as_they_arrive(hub: StandInHub, tmp_path: Path) -> None:
    transfer = CountingTransfer()
    run_job(hub, SHARD, tmp_path, transfer)
    assert sum(transfer.counts) == len(hub.files[SHARD])


def test_file_on_its_way_stops_when_the_fetch_is_given_up(hub: StandInHub, tmp_path: Path) -> None:
    with pytest.raises(TransferStopped):
        run_job(hub, SHARD, tmp_path, CountingTransfer(stops=True))
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_librarys_warnings_which_hold_signed_links_are_kept_out_of_the_log(hub: StandInHub) -> None:
    hub_logging.set_verbosity(logging.WARNING)
    HubCheckpoint(SOURCE, Hub(hub.endpoint))
    assert hub_logging.get_verbosity() == logging.ERROR
