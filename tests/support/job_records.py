"""What a job leaves in the job store, written by hand, for tests of whoever reads it."""

from datetime import UTC, datetime
from pathlib import Path

from batch_pipelines.api.parse import parse_request
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import InputSource, Manifest, ShardEntry, write_manifest
from batch_pipelines.jobs.parts import PartFooter, commit_part
from batch_pipelines.jobs.progress import Counts, WorkerReport, write_report
from batch_pipelines.settings import Settings
from batch_pipelines.stages.merge import Summary
from batch_pipelines.stages.validate import store_request
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["JobRecords"]

FINGERPRINT = "f" * 64
REQUEST = {
    "input_data_path": "/data/in.jsonl",
    "output_data_path": "/data/out.json",
    "labels": {"team": "a"},
    "max_runtime_sec": 3600,
    "model_config": {"model": "tiny"},
}


class JobRecords:
    """Writes one job's records."""

    def __init__(self, settings: Settings, job_id: str) -> None:
        self.store = ObjectStorage(roots=[settings.job_store])
        self.folder = JobFolder(settings.job_store, job_id)

    def accept(self, **changes: object) -> None:
        """Keep a request."""
        store_request(self.store, self.folder, parse_request(REQUEST | changes))

    def shard(self, items: int) -> None:
        """Plan the job, as one shard."""
        entry = ShardEntry(id=0, first_index=0, items=items, invalid=0, estimated_tokens=9, sha256="0" * 64)
        manifest = Manifest(
            job_id=self.folder.job_id,
            fingerprint=FINGERPRINT,
            request_digest="0" * 64,
            settings_digest="0" * 64,
            kind="chat",
            v1_header=None,
            source=InputSource(uri="file:///data/in.jsonl", size=1),
            items=items,
            invalid=0,
            estimated_tokens=9,
            shards=(entry,),
        )
        write_manifest(self.store, self.folder, manifest)

    def report(self, state: str, *, done: int = 0, failed: int = 0, rate: float = 0.0) -> None:
        """Let a worker report."""
        report = WorkerReport(
            worker="w0",
            run_id="run-0",
            replica=0,
            attempt=0,
            state=state,
            updated_at=datetime.now(UTC),
            open={0: Counts(items=done, failed=failed, completion_tokens=10 * done)},
            tokens_per_second=rate,
        )
        write_report(self.store, self.folder, FINGERPRINT, report)

    def commit(self) -> None:
        """Commit its one shard."""
        footer = PartFooter(0, "0" * 64, 10, 0, 0, 1.0, "w0", ())
        commit_part(self.store, self.folder, FINGERPRINT, [b"{}"] * 10, footer)

    def publish(
        self, output: Path, *, total: int = 3, errors: Path | None = None, run_id: str = "run-0"
    ) -> None:
        """Say that the output is there, put there by this run."""
        summary = Summary(
            job_id=self.folder.job_id,
            run_id=run_id,
            output=output.as_uri(),
            errors=errors.as_uri() if errors else None,
            total=total,
            succeeded=total - (1 if errors else 0),
            failed=1 if errors else 0,
            prompt_tokens=30,
            completion_tokens=60,
            shards=1,
            output_bytes=99,
            fingerprint=FINGERPRINT,
            warnings=["model_config.labels is unknown"],
            completed_at=datetime.now(UTC),
        )
        self.store.write(self.folder.summary, summary.model_dump_json().encode())
