"""Stage 4: the parts, in input order, into one output file: complete, or not there at all.

Nothing is published unless every shard is committed. Records are copied as they are; the errors
file is published just before the output, so that whoever sees the output finds its errors too.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import BinaryIO

import orjson
from pydantic import BaseModel

from batch_pipelines.jobs.manifest import Manifest, ShardEntry
from batch_pipelines.jobs.parts import Part, PartDamaged, committed_shards, read_part
from batch_pipelines.stages.adopt import forget_unfinished
from batch_pipelines.stages.job import Job

__all__ = ["MergeIncomplete", "Summary", "errors_path", "merge_parts"]

_READS_AHEAD = 2
_COPY_BYTES = 2**20


class MergeIncomplete(Exception):
    """Some shards have no committed records: publishing would lose items."""


class Summary(BaseModel):
    """What a completed job did.

    Attributes:
        job_id: The job.
        run_id: The run that published the output.
        output: URI of the output file.
        errors: URI of the errors file; None if no item failed.
        total: Items of the input, and records of the output.
        succeeded: Items with an answer.
        failed: Items with an error record.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
        shards: Shards of the job.
        output_bytes: Size of the output file.
        fingerprint: Of the work: see `batch_pipelines.jobs.fingerprint`.
        warnings: What the user should know of the request.
        completed_at: When the output was published.
    """

    job_id: str
    run_id: str
    output: str
    errors: str | None
    total: int
    succeeded: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    shards: int
    output_bytes: int
    fingerprint: str
    warnings: list[str]
    completed_at: datetime


def errors_path(output: str) -> str:
    """URI of the errors file that goes with an output file."""
    return f"{output}.errors.jsonl"


def merge_parts(
    job: Job,
    manifest: Manifest,
    output_data_path: str,
    *,
    run_id: str = "",
    warnings: Iterable[str] = (),
    check: Callable[[], None] = lambda: None,
) -> Summary:
    """Publish the output of a job whose shards are all committed.

    Args:
        job: The job.
        manifest: Its plan.
        output_data_path: Where to; a name ending in `.jsonl` gets a record a line, any other a JSON array.
        run_id: The run that merges, for the summary.
        warnings: Kept in the summary.
        check: Called with every part; what it raises ends the merge, and nothing is published.

    Raises:
        MergeIncomplete: A shard is not committed. Nothing was published.
        PartDamaged: A part did not fit its shard. It was removed, so that the next run computes it
            again; nothing was published.
    """
    missing = _missing(job, manifest)
    if missing:
        some = ", ".join(f"{shard:05d}" for shard in missing[:10])
        raise MergeIncomplete(
            f"{len(missing)} of {len(manifest.shards)} shards are not committed (first: {some}); "
            "nothing was published, and what is committed is kept"
        )
    output = job.data.check(output_data_path)
    with tempfile.TemporaryFile() as failures:
        totals = _Totals(failures)
        lines = output.endswith(".jsonl")
        size = job.data.write_stream(output, _publish(job, manifest, output, totals, check, as_lines=lines))
    summary = Summary(
        job_id=job.folder.job_id,
        run_id=run_id,
        output=output,
        errors=errors_path(output) if totals.failed else None,
        total=manifest.items,
        succeeded=manifest.items - totals.failed,
        failed=totals.failed,
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens,
        shards=len(manifest.shards),
        output_bytes=size,
        fingerprint=manifest.fingerprint,
        warnings=list(warnings),
        completed_at=datetime.now(UTC),
    )
    job.store.write(job.folder.summary, summary.model_dump_json().encode())
    forget_unfinished(job, manifest)
    return summary


def _missing(job: Job, manifest: Manifest) -> list[int]:
    committed = committed_shards(job.store, job.folder, manifest.fingerprint)
    return [shard.id for shard in manifest.shards if shard.id not in committed]


class _Totals:
    """Sums over the parts, and the errors file being written."""

    def __init__(self, failures: BinaryIO) -> None:
        self.failures = failures
        self.failed = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0

    def add(self, part: Part) -> None:
        self.prompt_tokens += part.footer.prompt_tokens
        self.completion_tokens += part.footer.completion_tokens
        self.failed += len(part.footer.failures)
        for failure in part.footer.failures:
            line = {"index": failure.index, "line": failure.line or None, "error": failure.error}
            self.failures.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def _publish(
    job: Job,
    manifest: Manifest,
    output: str,
    totals: _Totals,
    check: Callable[[], None],
    *,
    as_lines: bool,
) -> Iterator[bytes]:
    """The output's bytes; just before they end, the errors file is in place."""
    between = b"\n" if as_lines else b",\n"
    if not as_lines:
        yield b"["
    separator = b"" if as_lines else b"\n"
    for part in _parts_in_order(job, manifest):
        check()
        totals.add(part)
        yield separator
        for piece in _pieces(part.records):
            yield piece if as_lines else piece.replace(b"\n", between)
        separator = between
    if not as_lines:
        yield b"\n]\n"
    elif manifest.items:
        yield b"\n"
    _publish_errors(job, errors_path(output), totals)


def _pieces(records: bytes) -> Iterator[bytes]:
    """A part's records without their last newline, a piece at a time: replacing copies what it is given."""
    for start in range(0, len(records) - 1, _COPY_BYTES):
        yield records[start : min(start + _COPY_BYTES, len(records) - 1)]


def _publish_errors(job: Job, uri: str, totals: _Totals) -> None:
    if not totals.failed:
        job.data.delete(uri)  # of an earlier job with the same output path
        return
    totals.failures.seek(0)
    job.data.write_stream(uri, iter(lambda: totals.failures.read(_COPY_BYTES), b""))


def _parts_in_order(job: Job, manifest: Manifest) -> Iterator[Part]:
    """The parts, the next few being read while one is copied."""
    with ThreadPoolExecutor(_READS_AHEAD, thread_name_prefix="part-read") as pool:
        reads: deque[Future[Part]] = deque()
        waiting = iter(manifest.shards)

        def read_another() -> None:
            shard: ShardEntry | None = next(waiting, None)
            if shard is not None:
                reads.append(pool.submit(_read_or_remove, job, manifest, shard))

        for _ in range(_READS_AHEAD):
            read_another()
        while reads:
            part = reads.popleft().result()
            read_another()
            yield part


def _read_or_remove(job: Job, manifest: Manifest, shard: ShardEntry) -> Part:
    try:
        return read_part(job.store, job.folder, manifest, shard)
    except PartDamaged:
        job.store.delete(job.folder.part(manifest.fingerprint, shard.id))
        raise
