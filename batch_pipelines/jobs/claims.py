"""Claims: who works on which shard.

A claim is a hint that saves double work; the part is the truth. So a claim may be wrong in either
direction (its owner dead, or two owners at once) and nothing is lost: a claim whose owner has gone
quiet is outbid by the next attempt number, and if both finish, the first commit wins. All ages go
by the store's clock, so workers' clocks need not agree.
"""

import random
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

import orjson

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest, ShardEntry
from batch_pipelines.jobs.parts import committed_shards, shard_id_of
from batch_pipelines.jobs.progress import live_workers
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["ClaimBoard", "Worker"]

_LOST_BIDS_TO_REFRESH = 8


@dataclass(frozen=True, slots=True)
class Worker:
    """An attempt of a replica's step.

    Attributes:
        run_id: The run.
        replica: Which replica of the run, from 0.
        attempt: Of the replica's step, from 0.
    """

    run_id: str
    replica: int
    attempt: int

    @property
    def name(self) -> str:
        """Unique name, fit for a file."""
        return f"{self.run_id}-{self.replica:02d}-{self.attempt}"


class ClaimBoard:
    """One worker's view of a job's shards: claims the next free one.

    The view is refreshed by listing only when a claim fails or nothing looks free; in between a
    claim costs one request.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        folder: JobFolder,
        manifest: Manifest,
        worker: Worker,
        *,
        replicas: int,
        ttl: timedelta,
    ) -> None:
        """See the class.

        Args:
            storage: Where the job store is.
            folder: The job's folder.
            manifest: The job's plan.
            worker: Who claims. It must report progress more often than `ttl`.
            replicas: How many workers share the job.
            ttl: Silence after which a worker counts as gone.
        """
        self._storage = storage
        self._folder = folder
        self._manifest = manifest
        self._worker = worker
        self._replicas = max(replicas, worker.replica + 1)
        self._ttl = ttl
        self._mine: set[int] = set()
        self._committed: set[int] = set()
        self._attempts: dict[int, int] = {}
        self._owners: dict[str, Worker] = {}
        self._alive: set[str] = set()
        self._untouched: deque[ShardEntry] = deque()

    def refresh(self) -> None:
        """Look at every commit, claim and heartbeat. Call it just after reporting progress."""
        fingerprint = self._manifest.fingerprint
        self._committed = committed_shards(self._storage, self._folder, fingerprint)
        attempts: dict[int, int] = {}
        for info in self._storage.list(self._folder.claims(fingerprint)):
            shard, attempt = shard_id_of(info.uri), int(info.uri.rsplit(".", 1)[1])
            attempts[shard] = max(attempt, attempts.get(shard, 0))
        self._attempts = attempts
        self._untouched = deque(
            shard
            for shard in self._in_my_order()
            if shard.id not in attempts and shard.id not in self._committed and shard.id not in self._mine
        )
        reports = list(self._storage.list(self._folder.workers(fingerprint)))
        now = max((report.last_modified for report in reports), default=None)
        self._alive = live_workers(reports, now=now, ttl=self._ttl) if now else set()

    def all_committed(self) -> bool:
        """Whether, as of the last refresh, every shard is committed."""
        return len(self._committed) >= len(self._manifest.shards)

    def claim_next(self) -> ShardEntry | None:
        """Claim a shard that nobody works on; None if, after a fresh look, there is none."""
        lost = 0
        while self._untouched:
            shard = self._untouched.popleft()
            if self._bid(shard, attempt=1):
                return shard
            lost += 1
            if lost % _LOST_BIDS_TO_REFRESH == 0:
                self.refresh()
        return self._claim_abandoned()

    def note_committed(self, shard_id: int) -> None:
        """Remember that a shard of this worker's is committed."""
        self._committed.add(shard_id)

    def _claim_abandoned(self) -> ShardEntry | None:
        self.refresh()
        for shard in self._in_my_order():
            if shard.id in self._mine or shard.id in self._committed:
                continue
            attempt = self._attempts.get(shard.id, 0)
            if attempt and self._is_held(shard.id, attempt):
                continue
            if self._bid(shard, attempt=attempt + 1):
                return shard
        return None

    def _in_my_order(self) -> list[ShardEntry]:
        """The replica's own share, then the others' shares shuffled: replicas seldom bid for the same one."""
        shards = self._manifest.shards
        start = len(shards) * self._worker.replica // self._replicas
        end = len(shards) * (self._worker.replica + 1) // self._replicas
        others = [*shards[end:], *shards[:start]]
        random.Random(self._worker.name).shuffle(others)  # noqa: S311  # an order, not a secret
        return [*shards[start:end], *others]

    def _bid(self, shard: ShardEntry, attempt: int) -> bool:
        uri = self._folder.claim(self._manifest.fingerprint, shard.id, attempt)
        won = self._storage.create(uri, orjson.dumps(self._worker))
        if won:
            self._mine.add(shard.id)
        return won

    def _is_held(self, shard_id: int, attempt: int) -> bool:
        owner = self._owner(self._folder.claim(self._manifest.fingerprint, shard_id, attempt))
        if owner == self._worker:
            return False  # this worker's own bid, won although the store's answer said otherwise or was lost
        if owner is None or owner.run_id != self._worker.run_id:
            return False  # a job has one run at a time: another run's claims are of the past
        if owner.replica == self._worker.replica and owner.attempt != self._worker.attempt:
            return False  # this step's own earlier attempt
        return owner.name in self._alive

    def _owner(self, uri: str) -> Worker | None:
        if uri not in self._owners:
            try:
                self._owners[uri] = Worker(**orjson.loads(self._storage.read(uri)))
            except ObjectNotFound:
                return None
        return self._owners[uri]
