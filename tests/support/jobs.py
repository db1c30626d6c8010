"""Jobs in a folder of a test's own, and their stages run in this process."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.engines.protocol import Engine
from batch_pipelines.feeding.answer import Answerer
from batch_pipelines.feeding.replica import Replica, ReplicaResult, ReplicaTiming
from batch_pipelines.jobs.claims import Worker
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.stages.infer import run_replica
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.shard import ShardLimits, shard_input
from batch_pipelines.storage.object_storage import ObjectStorage

LIMITS = ShardLimits(max_items=8, max_bytes=2**20, max_item_bytes=2**20)
TIMING = ReplicaTiming(heartbeat_sec=0.1, claim_ttl=timedelta(seconds=1), poll_sec=0.05)


def make_job(folder: Path, job_id: str = "job") -> Job:
    """A job whose store and data lie under `folder`."""
    store, data = folder / "store", folder / "data"
    store.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    return Job(
        folder=JobFolder(store.as_uri(), job_id),
        store=ObjectStorage(roots=[store.as_uri()]),
        data=ObjectStorage(roots=[data.as_uri()]),
    )


def make_request(folder: Path, **fields: Any) -> CreateBatchCompletionsV2Request:
    """A request for the input in `folder`/data/input.jsonl, unless `fields` say otherwise."""
    defaults: dict[str, Any] = {
        "output_data_path": str(folder / "data" / "output.json"),
        "model_config": {"model": "fake"},
    }
    if "content" not in fields:
        defaults["input_data_path"] = str(folder / "data" / "input.jsonl")
    return parse_request({**defaults, **fields})


def write_input(folder: Path, items: list[Any]) -> None:
    """Write the input file of a job made with `make_request`; bytes are written as they are."""
    path = folder / "data" / "input.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join((item if isinstance(item, bytes) else orjson.dumps(item)) + b"\n" for item in items)
    )


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """A chat item."""
    return {"messages": [{"role": "user", "content": text}], **fields}


def infer(
    job: Job,
    request: CreateBatchCompletionsV2Request,
    manifest: Manifest,
    *,
    engine: Engine | None = None,
    worker: Worker | None = None,
    replicas: int = 1,
    check: Callable[[], None] = lambda: None,
    events: list[str] | None = None,
    timing: ReplicaTiming = TIMING,
) -> ReplicaResult:
    """Run one replica to its end."""
    who = worker or Worker("run", 0, 0)
    return run_replica(
        lambda: Replica(
            storage=job.store,
            folder=job.folder,
            manifest=manifest,
            worker=who,
            replicas=replicas,
            engine=engine or FakeEngine(),
            answerer=Answerer.for_job(request, manifest),
            timing=timing,
            on_event=(events if events is not None else []).append,
        ),
        check=check,
    )


def shard(
    job: Job, request: CreateBatchCompletionsV2Request, limits: ShardLimits = LIMITS, *, engine: str = "fake"
) -> Manifest:
    """Shard the job's input."""
    return shard_input(job, request, limits, engine=engine)


def output_of(request: CreateBatchCompletionsV2Request) -> list[Mapping[str, Any]]:
    """The records of a published output file."""
    data = Path(request.output_data_path).read_bytes()
    if request.output_data_path.endswith(".jsonl"):
        return [orjson.loads(line) for line in data.splitlines()]
    records: list[Mapping[str, Any]] = orjson.loads(data)
    return records
