"""Stage 2: one streaming pass over the input, into shard files and a manifest.

Each item is validated here, so that an item that cannot be answered costs no GPU time and is named
by index and line; it stays in its place and gets an error record. Sharding depends on the input
alone, never on the number of replicas, so the same input always gives the same shards.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.items import ItemKind, unknown_keys
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.inputs.reader import InputError, InputStream, RawItem, open_input
from batch_pipelines.jobs.fingerprint import fingerprint_of, request_digest, settings_digest
from batch_pipelines.jobs.manifest import InputSource, Manifest, ShardEntry, read_manifest, write_manifest
from batch_pipelines.jobs.shard_files import encode_invalid, encode_valid
from batch_pipelines.preflight.protocol import ModelUnfit, NoPreflight, Preflight
from batch_pipelines.stages.inline import inline_input
from batch_pipelines.stages.job import Job, JobFailed
from batch_pipelines.stages.judge import ItemCheck, check_header, item_check, judge, needs_of, told
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.locations import redact
from batch_pipelines.translation.survey import Survey

__all__ = ["InputChanged", "ShardLimits", "shard_input"]

_FIRST_SHARD_ITEMS = 16
_LOOK_SEC = 1.0
_SHARDS_PER_STEP = 4
_UPLOADS_IN_FLIGHT = 4
_BYTES_A_TOKEN = 4
"""An item weighs what its record may weigh, so that a shard's records stay within the shard's limit too."""


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """Bounds on one shard and one item.

    Attributes:
        max_items: Most items in a shard.
        max_bytes: Most bytes in a shard, unless a single item is larger.
        max_item_bytes: Largest item; a larger one gets an error record.
    """

    max_items: int
    max_bytes: int
    max_item_bytes: int


def shard_input(
    job: Job,
    request: CreateBatchCompletionsV2Request,
    limits: ShardLimits,
    *,
    engine: str,
    preflight: Preflight | None = None,
    check: Callable[[], None] = lambda: None,
) -> Manifest:
    """Shard the job's input, or take up the manifest an earlier attempt left for the same input.

    Args:
        job: The job.
        request: What it asks.
        limits: Bounds on a shard and an item.
        engine: What tells the deployment's engine and its weights from any other.
        preflight: Checks each item against the model, so that what the engine would refuse never reaches it.
        check: Called about once a second; what it raises ends the pass.

    Returns:
        The manifest, already published in the job's folder.

    Raises:
        JobFailed: The input as a whole cannot be read as items; the message names the line.
    """
    known = read_manifest(job.store, job.folder)
    try:
        source = _source_of(job, request)
    except ObjectNotFound as error:
        if known is not None and known.request_digest == request_digest(request):
            return known  # the shards are all there: an input that is gone since is not needed
        raise JobFailed(f"input_data_path: {error}") from error
    if known is not None and _still_holds(request, known, source, engine):
        manifest = known.model_copy(update={"request_digest": request_digest(request)})
    else:
        try:
            manifest = _shard_stream(job, request, limits, source, engine, preflight or NoPreflight(), check)
        except InputError as error:
            raise JobFailed(f"input_data_path: {error}") from error
        except ModelUnfit as error:
            raise JobFailed(f"model_config: {error}") from error
        if _source_of(job, request) != source:
            raise InputChanged(f"{redact(source.uri or 'content')} changed while it was being read")
    if manifest != known:
        write_manifest(job.store, job.folder, manifest)
    return manifest


class InputChanged(Exception):
    """The input was replaced during the pass over it; a new attempt may succeed."""


def _open(job: Job, request: CreateBatchCompletionsV2Request, limits: ShardLimits) -> InputStream:
    if request.input_data_path is not None:
        return open_input(job.data, request.input_data_path, max_item_bytes=limits.max_item_bytes)
    return inline_input(request)


def _source_of(job: Job, request: CreateBatchCompletionsV2Request) -> InputSource:
    if request.input_data_path is None:
        content = request.model_dump_json(by_alias=True, exclude_unset=True, include={"content"}).encode()
        return InputSource(uri=None, size=len(content), etag=hashlib.sha256(content).hexdigest())
    info = job.data.head(request.input_data_path)
    modified = info.last_modified if info.last_modified.timestamp() else None
    return InputSource(uri=info.uri, size=info.size, etag=info.etag, last_modified=modified)


def _still_holds(
    request: CreateBatchCompletionsV2Request, known: Manifest, source: InputSource, engine: str
) -> bool:
    can_tell = source.etag is not None or source.last_modified is not None
    digest = settings_digest(request, engine=engine, v1_header=known.v1_header)
    return can_tell and known.source == source and known.settings_digest == digest


def _shard_stream(
    job: Job,
    request: CreateBatchCompletionsV2Request,
    limits: ShardLimits,
    source: InputSource,
    engine: str,
    preflight: Preflight,
    check: Callable[[], None],
) -> Manifest:
    stream = _open(job, request, limits)
    header = _checked_header(stream, preflight)
    config = request.engine_config
    survey = Survey((config.model, config.served_model_name))
    check_item = item_check(survey, preflight, with_tool=request.tool_config is not None)
    validator = _Validator("v1" if header is not None else None, check_item)
    shards: list[ShardEntry] = []
    with _Uploads(job) as uploads:
        draft = _ShardDraft(id=0, first_index=0)
        looked = time.monotonic()
        for raw in stream.items:
            if time.monotonic() - looked > _LOOK_SEC:
                check()
                looked = time.monotonic()
            line, tokens, valid = validator.shard_line(raw)
            weight = max(len(line), tokens * _BYTES_A_TOKEN)
            if draft.lines and not draft.has_room(weight, limits):
                shards.append(uploads.put(draft))
                draft = _ShardDraft(id=draft.id + 1, first_index=raw.index)
            draft.add(line, weight, tokens, valid=valid)
        if draft.lines:
            shards.append(uploads.put(draft))
    digest = settings_digest(request, engine=engine, v1_header=header)
    return Manifest(
        job_id=job.folder.job_id,
        fingerprint=fingerprint_of(digest, (shard.sha256 for shard in shards)),
        request_digest=request_digest(request),
        settings_digest=digest,
        kind=validator.kind,
        v1_header=header,
        source=source,
        items=sum(shard.items for shard in shards),
        invalid=sum(shard.invalid for shard in shards),
        estimated_tokens=sum(shard.estimated_tokens for shard in shards),
        needs=needs_of(survey, preflight),
        warnings=(*survey.warnings, *told(preflight.notes)),
        shards=tuple(shards),
    )


def _checked_header(stream: InputStream, preflight: Preflight) -> dict[str, Any] | None:
    if stream.header is None:
        return None
    try:
        check_header(stream.header.fields, preflight)
    except RequestInvalid as error:
        raise JobFailed(f"the input: {error}") from error
    return stream.header.fields


@dataclass(slots=True)
class _Validator:
    """Validates items one by one; all are of the kind of the first valid one."""

    kind: ItemKind | None
    check: ItemCheck

    def shard_line(self, raw: RawItem) -> tuple[bytes, int, bool]:
        """The item's line in its shard file, its estimated tokens, and whether it is valid."""
        judged = judge(self.kind, raw, self.check)
        if isinstance(judged, ItemError):
            echo = {} if raw.data is None else unknown_keys(raw.data)
            return encode_invalid(raw.index, raw.line, judged.model_dump(), echo), 0, False
        self.kind = judged.kind
        return encode_valid(raw.index, raw.line, judged.data), judged.tokens, True


@dataclass(slots=True)
class _ShardDraft:
    """A shard being filled."""

    id: int
    first_index: int
    lines: list[bytes] = field(default_factory=list)
    weight: int = 0
    tokens: int = 0
    invalid: int = 0

    def has_room(self, weight: int, limits: ShardLimits) -> bool:
        """Whether one more item fits.

        The first shards are small and sizes double every few shards: a short job still has
        shards for every replica and commits early, a long one has few shards.
        """
        ramp = _FIRST_SHARD_ITEMS << min(self.id // _SHARDS_PER_STEP, 20)
        return len(self.lines) < min(ramp, limits.max_items) and self.weight + weight <= limits.max_bytes

    def add(self, line: bytes, weight: int, tokens: int, *, valid: bool) -> None:
        """Put an item's line in."""
        self.lines.append(line)
        self.weight += weight
        self.tokens += tokens
        self.invalid += not valid


class _Uploads:
    """Writes shard files a few at a time, so that the pass does not wait for the store."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pool = ThreadPoolExecutor(_UPLOADS_IN_FLIGHT, thread_name_prefix="shard-upload")
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            for upload in self._pending:
                upload.result()

    def put(self, draft: _ShardDraft) -> ShardEntry:
        """Write a shard file in the background; waits while too many are under way."""
        while len(self._pending) >= _UPLOADS_IN_FLIGHT:
            self._pending.popleft().result()
        data = b"".join(draft.lines)
        sha256 = hashlib.sha256(data).hexdigest()
        uri = self._job.folder.shard(draft.id, sha256)
        self._pending.append(self._pool.submit(self._job.store.write, uri, data))
        return ShardEntry(
            id=draft.id,
            first_index=draft.first_index,
            items=len(draft.lines),
            invalid=draft.invalid,
            estimated_tokens=draft.tokens,
            sha256=sha256,
        )
