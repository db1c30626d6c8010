"""Progress: what each worker reports, and what that says of the job.

A worker's report is its heartbeat too. Counts of committed work come from the parts, which cannot
be wrong; a report only adds what is under way and how fast it goes.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import BaseModel

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest, read_manifest
from batch_pipelines.jobs.parts import committed_shards
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_info import ObjectInfo
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["Counts", "JobProgress", "WorkerReport", "job_progress", "live_workers", "write_report"]


class Counts(BaseModel):
    """Items and what they add up to.

    Attributes:
        items: Items answered.
        failed: Of these, the ones with an error record.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
    """

    items: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            items=self.items + other.items,
            failed=self.failed + other.failed,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class WorkerReport(BaseModel):
    """What one worker has done so far.

    Attributes:
        worker: Unique to an attempt of a replica's step in a run.
        run_id: The run it belongs to.
        replica: Its replica, from 0.
        attempt: Of its step, from 0.
        state: What it is doing, in a word or two.
        updated_at: By the worker's clock; staleness goes by the store's.
        shards_committed: Shards whose part it committed.
        committed: What is in those shards.
        open: What is done of each shard that it holds and has not committed.
        tokens_per_second: Tokens written a second, over the last minute or so.
        engine_starts: How often it started an engine.
        engine_deaths: How often its engine died.
    """

    worker: str
    run_id: str
    replica: int
    attempt: int
    state: str
    updated_at: datetime
    shards_committed: int = 0
    committed: Counts = Counts()
    open: dict[int, Counts] = {}
    tokens_per_second: float = 0.0
    engine_starts: int = 0
    engine_deaths: int = 0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is.

    Attributes:
        total: Items in the input.
        committed: Items whose records are durable.
        done: Items answered, committed or not.
        failed: Of these, the ones with an error record.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
        tokens_per_second: Tokens written a second, over the live workers.
        shards_total: Shards of the job.
        shards_committed: Shards committed.
        workers: Live workers' states by name.
    """

    total: int
    committed: int
    done: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float
    shards_total: int
    shards_committed: int
    workers: dict[str, str]


def write_report(storage: ObjectStorage, folder: JobFolder, fingerprint: str, report: WorkerReport) -> None:
    """Write a worker's report, replacing its last one."""
    storage.write(folder.worker(fingerprint, report.worker), report.model_dump_json().encode())


def live_workers(reports: list[ObjectInfo], *, now: datetime, ttl: timedelta) -> set[str]:
    """Names of the workers whose last report is younger than `ttl`, all by the store's clock."""
    return {_worker_of(report.uri) for report in reports if now - report.last_modified <= ttl}


def job_progress(storage: ObjectStorage, folder: JobFolder, *, ttl: timedelta) -> JobProgress | None:
    """How far the job is, or None while its input is not sharded.

    Args:
        storage: Where the job store is.
        folder: The job's folder.
        ttl: A worker whose last report is older than this, against the newest, is taken for gone.
    """
    manifest = read_manifest(storage, folder)
    if manifest is None:
        return None
    infos = list(storage.list(folder.workers(manifest.fingerprint)))
    now = max((info.last_modified for info in infos), default=None)
    alive = live_workers(infos, now=now, ttl=ttl) if now else set()
    reports = [report for info in infos if (report := _read_report(storage, info.uri))]
    return _combine(manifest, committed_shards(storage, folder, manifest.fingerprint), reports, alive)


def _combine(
    manifest: Manifest, committed: set[int], reports: list[WorkerReport], alive: set[str]
) -> JobProgress:
    committed_items = sum(shard.items for shard in manifest.shards if shard.id in committed)
    live = [report for report in reports if report.worker in alive and report.state != "done"]
    known = sum((report.committed for report in reports), Counts())
    open_shards = {shard: counts for report in live for shard, counts in report.open.items()}
    # A shard may be committed since its worker's last report: its items must not count twice. What else is
    # known of it is in that report alone.
    under_way = sum((counts for shard, counts in open_shards.items() if shard not in committed), Counts())
    seen = sum(open_shards.values(), known)
    return JobProgress(
        total=manifest.items,
        committed=committed_items,
        done=min(manifest.items, committed_items + under_way.items),
        failed=seen.failed,
        prompt_tokens=seen.prompt_tokens,
        completion_tokens=seen.completion_tokens,
        tokens_per_second=sum(report.tokens_per_second for report in live),
        shards_total=len(manifest.shards),
        shards_committed=len(committed),
        workers={report.worker: report.state for report in live},
    )


def _read_report(storage: ObjectStorage, uri: str) -> WorkerReport | None:
    try:
        return WorkerReport.model_validate_json(storage.read(uri))
    except ObjectNotFound:
        return None


def _worker_of(uri: str) -> str:
    return uri.rsplit("/", 1)[1].removesuffix(".json")
