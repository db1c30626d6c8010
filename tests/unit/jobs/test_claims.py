"""Claims are hints: one worker a shard while it is alive, anybody's once it is gone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batch_pipelines.jobs.claims import ClaimBoard, Worker
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import InputSource, Manifest, ShardEntry
from batch_pipelines.jobs.parts import PartFooter, commit_part
from batch_pipelines.jobs.progress import WorkerReport, write_report
from batch_pipelines.storage.object_storage import ObjectInfo, ObjectStorage

FINGERPRINT = "f" * 64
TTL = timedelta(minutes=1)


class Setting:
    """A job store with a job of `shards` shards of one item."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder = JobFolder(folder.as_uri(), "job")
        self.storage = ObjectStorage(roots=[folder.as_uri()])
        self.manifest = Manifest(
            job_id="job",
            fingerprint=FINGERPRINT,
            request_digest="r",
            settings_digest="d",
            kind="chat",
            v1_header=None,
            source=InputSource(uri=None, size=0),
            items=shards,
            invalid=0,
            estimated_tokens=0,
            shards=tuple(
                ShardEntry(id=n, first_index=n, items=1, invalid=0, estimated_tokens=0, sha256="s")
                for n in range(shards)
            ),
        )

    def board(self, worker: Worker, *, replicas: int = 2, ttl: timedelta = TTL) -> ClaimBoard:
        self.beat(worker)
        board = ClaimBoard(self.storage, self.folder, self.manifest, worker, replicas=replicas, ttl=ttl)
        board.refresh()
        return board

    def beat(self, worker: Worker) -> None:
        report = WorkerReport(
            worker=worker.name,
            run_id=worker.run_id,
            replica=worker.replica,
            attempt=worker.attempt,
            state="inferring",
            updated_at=datetime.now(UTC),
        )
        write_report(self.storage, self.folder, FINGERPRINT, report)

    def commit(self, shard: int, worker: str = "w") -> bool:
        footer = PartFooter(shard, "s", 1, 1, 1, 0.1, worker, ())
        return commit_part(self.storage, self.folder, FINGERPRINT, [b"{}"], footer)


def ids(board: ClaimBoard) -> list[int]:
    claimed = []
    while (shard := board.claim_next()) is not None:
        claimed.append(shard.id)
    return claimed


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, shards=6)


def test_two_live_workers_share_the_shards_and_none_is_claimed_twice(setting: Setting) -> None:
    first, second = setting.board(Worker("run", 0, 0)), setting.board(Worker("run", 1, 0))
    claimed: dict[str, list[int]] = {"first": [], "second": []}
    for _ in range(6):
        for name, board in (("first", first), ("second", second)):
            shard = board.claim_next()
            if shard is not None:
                claimed[name].append(shard.id)
    assert sorted(claimed["first"] + claimed["second"]) == [0, 1, 2, 3, 4, 5]
    assert claimed["first"] == [0, 1, 2]
    assert claimed["second"] == [3, 4, 5]


def test_worker_takes_all_shards_when_the_other_replicas_never_start(setting: Setting) -> None:
    assert sorted(ids(setting.board(Worker("run", 1, 0), replicas=3))) == [0, 1, 2, 3, 4, 5]


def test_claims_of_a_silent_worker_are_outbid(setting: Setting) -> None:
    silent, ttl = Worker("run", 0, 0), timedelta(0)
    board = setting.board(silent)
    assert sorted(ids(board)) == [0, 1, 2, 3, 4, 5]
    # The next worker's heartbeat is the store's newest; with no allowance the silent one's is too old.
    assert sorted(ids(setting.board(Worker("run", 1, 0), ttl=ttl))) == [0, 1, 2, 3, 4, 5]


def test_claims_of_a_live_worker_are_left_alone(setting: Setting) -> None:
    assert sorted(ids(setting.board(Worker("run", 0, 0)))) == [0, 1, 2, 3, 4, 5]
    assert ids(setting.board(Worker("run", 1, 0))) == []


@pytest.mark.parametrize(
    "successor", [Worker("run", 0, 1), Worker("later-run", 0, 0), Worker("later-run", 1, 0)]
)
def test_claims_of_an_earlier_attempt_or_run_are_free_at_once(setting: Setting, successor: Worker) -> None:
    assert len(ids(setting.board(Worker("run", 0, 0)))) == 6
    assert sorted(ids(setting.board(successor))) == [0, 1, 2, 3, 4, 5]


def test_committed_shards_are_never_claimed_again(setting: Setting) -> None:
    for shard in (0, 2, 4):
        assert setting.commit(shard)
    board = setting.board(Worker("run", 0, 0))
    assert sorted(ids(board)) == [1, 3, 5]
    assert not board.all_committed()


def test_second_commit_of_a_shard_is_refused_and_changes_nothing(setting: Setting) -> None:
    assert setting.commit(3, worker="first")
    part = setting.storage.read(setting.folder.part(FINGERPRINT, 3))
    assert not setting.commit(3, worker="second")
    assert setting.storage.read(setting.folder.part(FINGERPRINT, 3)) == part


def test_all_committed_is_seen_whoever_committed(setting: Setting) -> None:
    board = setting.board(Worker("run", 0, 0))
    for shard in range(6):
        setting.commit(shard, worker="another")
    board.refresh()
    assert board.all_committed()


def test_bid_whose_answer_was_lost_does_not_strand_the_shard(setting: Setting) -> None:
    class AnswerLost(ObjectStorage):
        lost = 0

        def create(self, uri: str, data: bytes) -> bool:
            won = super().create(uri, data)
            if "/claims/" in uri and not AnswerLost.lost:
                AnswerLost.lost += 1
                return False
            return won

    worker = Worker("run", 0, 0)
    setting.storage = AnswerLost(roots=[setting.folder.store])
    assert sorted(ids(setting.board(worker))) == [0, 1, 2, 3, 4, 5]
    assert AnswerLost.lost == 1


def test_replicas_that_share_leftovers_seldom_look_at_everything(tmp_path: Path) -> None:
    class Counting(ObjectStorage):
        lists = 0

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            Counting.lists += 1
            return super().list(prefix)

    setting = Setting(tmp_path, shards=300)
    setting.storage = Counting(roots=[tmp_path.as_uri()])
    boards = [setting.board(Worker("run", replica, 0), replicas=8) for replica in range(2)]
    claimed = 0
    while claimed < 300:
        claimed += sum(board.claim_next() is not None for board in boards)
    assert Counting.lists < 150  # three a look; one look a claim would be 900
