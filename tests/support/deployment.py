"""A whole deployment on this machine, for tests: Dagster's webserver and daemon, a job store, an engine."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.cli.local_dagster import LocalDagster, choose_url
from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.jobs import Jobs, JobView
from batch_pipelines.engines.fake import JournalEntry, read_journal
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest, read_manifest
from batch_pipelines.jobs.parts import committed_shards
from batch_pipelines.jobs.progress import WorkerReport
from batch_pipelines.settings import Settings
from batch_pipelines.storage.object_storage import ObjectStorage
from batch_pipelines.submission import submit
from tests.support.jobs import chat
from tests.support.processes import wait_until


@dataclass(frozen=True)
class RunningDeployment:
    """A running deployment, wherever its runs and files are; `folder` has what it keeps on this machine."""

    folder: Path
    settings: Settings
    client: DagsterClient
    store: ObjectStorage

    def view(self, job_id: str) -> JobView:
        """The job as its user sees it."""
        return Jobs(self.client, self.settings).view(job_id)

    def wait_for_end(self, job_id: str, within_sec: float = 150.0) -> JobView:
        """The job once its status is final."""
        wait_until(lambda: self.view(job_id).is_final, within_sec=within_sec, every_sec=1.0)
        return self.view(job_id)

    def manifest(self, job_id: str) -> Manifest | None:
        """The job's plan, once there is one."""
        return read_manifest(self.store, JobFolder(self.settings.job_store, job_id))

    def committed(self, job_id: str) -> set[int]:
        """The job's committed shards."""
        manifest = self.manifest(job_id)
        if manifest is None:
            return set()
        return committed_shards(self.store, JobFolder(self.settings.job_store, job_id), manifest.fingerprint)

    def committed_indexes(self, job_id: str) -> set[int]:
        """Indexes of the items whose records are committed."""
        manifest, committed = self.manifest(job_id), self.committed(job_id)
        assert manifest is not None
        return {
            index
            for shard in manifest.shards
            if shard.id in committed
            for index in range(shard.first_index, shard.first_index + shard.items)
        }

    def wait_for_commits(self, job_id: str, shards: int) -> None:
        """Return once at least so many shards are committed."""
        wait_until(lambda: len(self.committed(job_id)) >= shards, within_sec=90.0, every_sec=0.2)

    def reports(self, job_id: str) -> list[WorkerReport]:
        """The last report of each replica that worked on a job."""
        manifest = self.manifest(job_id)
        assert manifest is not None
        folder = JobFolder(self.settings.job_store, job_id)
        infos = self.store.list(folder.workers(manifest.fingerprint))
        return [WorkerReport.model_validate_json(self.store.read(info.uri)) for info in infos]


@dataclass(frozen=True)
class Deployment(RunningDeployment):
    """A running deployment whose files lie under `folder`."""

    def submit(self, name: str, items: list[Any], **fields: Any) -> str:
        """Submit a job for these items; its input and output are named after it."""
        source = self.folder / f"{name}.jsonl"
        source.write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in items))
        request = {
            "input_data_path": str(source),
            "output_data_path": str(self.output(name)),
            "model_config": {"model": "fake"},
            **fields,
        }
        return submit(request, settings=self.settings, client=self.client)

    def output(self, name: str) -> Path:
        """Where a job's output is published."""
        return self.folder / f"{name}.out.json"

    def records(self, name: str) -> list[dict[str, Any]]:
        """The published records of a job."""
        records: list[dict[str, Any]] = orjson.loads(self.output(name).read_bytes())
        return records

    @property
    def journal(self) -> list[JournalEntry]:
        """Every request the fake engines saw."""
        assert self.settings.fake_journal is not None
        return read_journal(self.settings.fake_journal)


@contextmanager
def deployment(folder: Path, environment: Mapping[str, str]) -> Iterator[Deployment]:
    """Start a deployment below `folder` and stop it in the end."""
    variables = {
        "BATCH_PIPELINES_HOME": str(folder / "home"),
        "BATCH_PIPELINES_STORAGE_ROOTS": orjson.dumps([folder.as_uri()]).decode(),
        "BATCH_PIPELINES_HEARTBEAT_SEC": "0.5",
        "BATCH_PIPELINES_CLAIM_TTL_SEC": "4",
        **environment,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("BATCH_PIPELINES_")]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        settings = Settings(dagster_url=choose_url(Settings(), any_port=True))
        with (
            LocalDagster(settings, settings.dagster_url) as dagster,
            DagsterClient(settings.dagster_url, settings.location) as client,
        ):
            dagster.start(client, print)
            yield Deployment(folder, settings, client, ObjectStorage(roots=[settings.job_store]))


def slow_fake_engine(folder: Path, delay_sec: float) -> dict[str, str]:
    """Environment of a deployment whose fake engine is slow enough to be caught at work, with a journal."""
    return {
        "BATCH_PIPELINES_ENGINE": "fake",
        "BATCH_PIPELINES_FAKE_DELAY_SEC": str(delay_sec),
        "BATCH_PIPELINES_FAKE_JOURNAL": str(folder / "journal"),
        "BATCH_PIPELINES_FAKE_MAX_IN_FLIGHT": "4",
    }


def chats(count: int, prefix: str) -> list[dict[str, Any]]:
    """Chat items that can be told apart, in the journal too."""
    return [chat(f"{prefix} {n}", custom_id=n) for n in range(count)]


def once_each(entries: list[JournalEntry], prefix: str, indexes: set[int]) -> bool:
    """Whether the engines saw each of these items of a job exactly once."""
    seen = [entry.prompt for entry in entries]
    return all(seen.count(f"{prefix} {index}") == 1 for index in indexes)
