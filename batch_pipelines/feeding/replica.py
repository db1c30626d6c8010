"""One replica: claims shards, feeds the engine without pause, commits parts.

The queue of items in front of the engine is filled from the next shard before the last one has
drained, so there is no gap between shards; how many requests are in flight is the engine's to say.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from batch_pipelines.engines.protocol import Engine
from batch_pipelines.feeding.answer import Answerer
from batch_pipelines.feeding.keeper import EngineKeeper
from batch_pipelines.feeding.open_shard import OpenShard
from batch_pipelines.jobs.claims import ClaimBoard, Worker
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.jobs.parts import commit_part
from batch_pipelines.jobs.progress import Counts, WorkerReport, write_report
from batch_pipelines.jobs.shard_files import read_shard
from batch_pipelines.storage.errors import StorageError
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["Replica", "ReplicaResult", "ReplicaTiming"]

_RATE_WINDOW_SEC = 60.0
_OPEN_SHARDS = 32
_OPEN_BYTES = 128 * 2**20
"""Shards and bytes of records a replica may hold uncommitted before it claims another shard.

They bound memory when each shard has one slow item, or records are large.
"""


@dataclass(frozen=True, slots=True)
class ReplicaTiming:
    """How often a replica reports and looks around, in seconds.

    Attributes:
        heartbeat_sec: Between two progress reports.
        claim_ttl: Silence after which another replica counts as gone.
        poll_sec: Between two looks at the others' shards when none is free.
    """

    heartbeat_sec: float
    claim_ttl: timedelta
    poll_sec: float = 2.0


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """What a replica did, for its step's output."""

    replica: int
    shards: int
    items: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    engine_starts: int
    engine_deaths: int
    seconds: float


class Replica:
    """Works on a job's shards until all are committed, whoever commits them."""

    def __init__(
        self,
        *,
        storage: ObjectStorage,
        folder: JobFolder,
        manifest: Manifest,
        worker: Worker,
        replicas: int,
        engine: Engine,
        answerer: Answerer,
        timing: ReplicaTiming,
        on_event: Callable[[str], None],
    ) -> None:
        """See the class.

        Args:
            storage: Where the job store is.
            folder: The job's folder.
            manifest: The job's plan.
            worker: Who this is.
            replicas: How many replicas share the job.
            engine: Not started yet; it starts with the first item that needs it.
            answerer: Makes items into requests and replies into records.
            timing: How often to report and look around.
            on_event: Told what happens, a sentence each, rarely.
        """
        self._storage = storage
        self._folder = folder
        self._manifest = manifest
        self._worker = worker
        self._timing = timing
        self._answerer = answerer
        self._on_event = on_event
        self._engine = engine
        self._keeper = EngineKeeper(engine, canary=answerer.canary, on_event=on_event)
        self._board = ClaimBoard(storage, folder, manifest, worker, replicas=replicas, ttl=timing.claim_ttl)
        self._open: dict[int, OpenShard] = {}
        self._committed_one = asyncio.Event()
        self._report = WorkerReport(
            worker=worker.name,
            run_id=worker.run_id,
            replica=worker.replica,
            attempt=worker.attempt,
            state="starting",
            updated_at=datetime.now(UTC),
        )
        self._tokens_written = 0
        self._beats: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    async def run(self) -> ReplicaResult:
        """Work until every shard is committed, then stop the engine.

        Raises:
            EngineError: The engine does not start, or keeps dying.
            StorageError: The job store cannot be read or written.
        """
        started = time.monotonic()
        queue: asyncio.Queue[tuple[OpenShard, int]] = asyncio.Queue(self._engine.max_in_flight)
        try:
            await self._beat("starting")
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._report_regularly())]
                helpers += [
                    group.create_task(self._answer_items(queue)) for _ in range(self._engine.max_in_flight)
                ]
                await self._feed(queue)
                for task in helpers:
                    task.cancel()
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from group_error
        finally:
            await self._keeper.stop()
        await self._beat("done")
        return self._result(time.monotonic() - started)

    async def _feed(self, queue: asyncio.Queue[tuple[OpenShard, int]]) -> None:
        await asyncio.to_thread(self._board.refresh)
        while True:
            self._committed_one.clear()  # before looking: a commit during the look must not be slept through
            if not self._has_room():
                await self._wait_for_a_commit()
                continue
            entry = await asyncio.to_thread(self._board.claim_next)
            if entry is None:
                if not self._open and self._board.all_committed():
                    return
                await self._wait_for_a_commit()
                continue
            shard = OpenShard(entry, await asyncio.to_thread(read_shard, self._storage, self._folder, entry))
            self._open[entry.id] = shard
            for position in range(len(shard.items)):
                await queue.put((shard, position))

    def _has_room(self) -> bool:
        held = sum(shard.size for shard in self._open.values())
        return not self._open or (len(self._open) < _OPEN_SHARDS and held < _OPEN_BYTES)

    async def _wait_for_a_commit(self) -> None:
        try:
            await asyncio.wait_for(self._committed_one.wait(), self._timing.poll_sec)
        except TimeoutError:
            return

    async def _answer_items(self, queue: asyncio.Queue[tuple[OpenShard, int]]) -> None:
        while True:
            shard, position = await queue.get()
            item = shard.items[position]
            if item is None:
                raise ValueError(f"item {position} of shard {shard.entry.id} was queued twice")
            record = await self._answerer.answer(item, self._keeper.answer)
            self._tokens_written += record.completion_tokens
            if shard.put(position, record):
                await self._commit(shard)

    async def _commit(self, shard: OpenShard) -> None:
        footer = shard.footer(self._worker.name)
        counted = await asyncio.to_thread(
            commit_part, self._storage, self._folder, self._manifest.fingerprint, shard.records, footer
        )
        del self._open[shard.entry.id]
        if counted:
            self._report.shards_committed += 1
            self._report.committed += _counts_of(shard)
        self._board.note_committed(shard.entry.id)
        self._committed_one.set()

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._timing.heartbeat_sec)
            try:
                await self._beat(self._state())
            except StorageError as error:
                # A report is a hint. If the store stays away, commits fail, and that ends the replica.
                self._on_event(f"progress report not written: {error}")

    async def _beat(self, state: str) -> None:
        now = time.monotonic()
        while len(self._beats) > 1 and now - self._beats[0][0] > _RATE_WINDOW_SEC:
            self._beats.popleft()
        then, tokens_then = self._beats[0]
        self._beats.append((now, self._tokens_written))
        self._report.state = state
        self._report.updated_at = datetime.now(UTC)
        self._report.open = {shard_id: _counts_of(shard) for shard_id, shard in self._open.items()}
        self._report.tokens_per_second = round(
            (self._tokens_written - tokens_then) / max(now - then, 1e-6), 1
        )
        self._report.engine_starts = self._keeper.starts
        self._report.engine_deaths = self._keeper.deaths
        await asyncio.to_thread(
            write_report, self._storage, self._folder, self._manifest.fingerprint, self._report.model_copy()
        )

    def _state(self) -> str:
        if not self._open:
            return "waiting for others' shards"
        return "inferring" if self._keeper.starts > self._keeper.deaths else "starting the engine"

    def _result(self, seconds: float) -> ReplicaResult:
        committed = self._report.committed
        return ReplicaResult(
            replica=self._worker.replica,
            shards=self._report.shards_committed,
            items=committed.items,
            failed=committed.failed,
            prompt_tokens=committed.prompt_tokens,
            completion_tokens=committed.completion_tokens,
            engine_starts=self._keeper.starts,
            engine_deaths=self._keeper.deaths,
            seconds=round(seconds, 3),
        )


def _counts_of(shard: OpenShard) -> Counts:
    return Counts(
        items=shard.done,
        failed=shard.failed,
        prompt_tokens=shard.prompt_tokens,
        completion_tokens=shard.completion_tokens,
    )
