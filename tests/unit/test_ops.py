"""The job in one process: how stages' failures become Dagster's, and what a re-run does."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import orjson
import pytest

from batch_pipelines.definitions import build_defs
from batch_pipelines.engines.fake import FakeEngine, read_journal
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.hardware import read_hardware, write_hardware
from batch_pipelines.jobs.pod_notes import PodNote, write_note
from batch_pipelines.models.errors import ModelUnavailable
from batch_pipelines.ops import _plan
from batch_pipelines.run_config import ASSET, JOB, PARTITION_TAG
from batch_pipelines.settings import Settings
from batch_pipelines.stages.validate import store_request
from batch_pipelines.storage.object_storage import ObjectStorage
from resources.fake_engines import FakeEngines
from tests.support.jobs import chat, make_job, make_request, shard, write_input

QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class Site:
    """A deployment whose files lie under `folder`."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, *, enforce_hardware: bool = False) -> None:
        self.folder = folder
        self.instance = instance
        self.journal = folder / "journal"
        settings = Settings(
            home=folder / "home",
            engine="fake",
            fake_journal=self.journal,
            storage_roots=[str(folder / "data")],
            enforce_hardware=enforce_hardware,
        )
        self.store = ObjectStorage(roots=[settings.job_store])
        self.job_folder = JobFolder(settings.job_store, "job")
        self.job = build_defs(settings).resolve_job_def(JOB)

    def run(self, job_id: str = "job", run_id: str | None = None, **fields: Any) -> dg.ExecuteInProcessResult:
        if not self.instance.has_dynamic_partition("batch_requests", job_id):
            self.instance.add_dynamic_partitions("batch_requests", [job_id])
        request = make_request(self.folder, **fields).model_dump(mode="json", exclude_unset=True)
        return self.job.execute_in_process(
            instance=self.instance,
            partition_key=job_id,
            tags={PARTITION_TAG: job_id},
            run_config={"ops": {ASSET: {"config": request}}, "loggers": QUIET},
            raise_on_error=False,
            run_id=run_id,
        )

    def records(self) -> list[Any]:
        records: list[Any] = orjson.loads((self.folder / "data" / "output.json").read_bytes())
        return records


@pytest.fixture
def site(tmp_path: Path, instance: dg.DagsterInstance) -> Site:
    write_input(tmp_path, [chat(f"q {n}") for n in range(40)])
    return Site(tmp_path, instance)


def failure_of(result: dg.ExecuteInProcessResult, op: str) -> str:
    (event,) = [
        event
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.STEP_FAILURE and (event.step_key or "").endswith(op)
    ]
    error = event.step_failure_data.error
    assert error is not None
    description = event.step_failure_data.user_failure_data
    return f"{error.message}\n{description.description if description else ''}"


def test_invalid_request_fails_its_first_step_once_with_every_reason(site: Site) -> None:
    result = site.run(output_data_path="/etc/x", model_config={"model": "fake", "trust_remote_code": True})
    assert not result.success
    text = failure_of(result, "validate_request")
    assert "/output_data_path" in text
    assert "/model_config/trust_remote_code" in text
    retried = [e for e in result.all_events if e.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert retried == []


def test_partition_key_that_cannot_name_a_folder_is_refused(site: Site) -> None:
    assert "cannot be used" in failure_of(site.run("../other"), "validate_request")


def test_running_a_completed_job_again_publishes_the_same_without_the_engine(site: Site) -> None:
    assert site.run().success
    first = site.records()
    (site.folder / "data" / "output.json").unlink()
    assert site.run().success
    assert site.records() == first
    assert len(read_journal(site.journal)) == 40


def test_another_request_in_the_same_partition_gets_its_own_answers(site: Site) -> None:
    assert site.run(content=[chat("one")]).success
    assert site.run(content=[chat("two")]).success
    assert [record["choices"][0]["message"]["content"][-3:] for record in site.records()] == ["two"]


def test_steps_refuse_a_plan_that_was_made_for_another_request(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    one, two = make_request(tmp_path, content=[chat("one")]), make_request(tmp_path, content=[chat("two")])
    shard(job, one)
    store_request(job.store, job.folder, one)
    assert _plan(job)[0] == one
    store_request(job.store, job.folder, two)  # a second launch that failed before it sharded its input
    with pytest.raises(dg.Failure, match="run all its steps again"):
        _plan(job)


def test_engine_that_does_not_start_fails_the_merge_with_its_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def ready(*_: object, **__: object) -> Iterator[Callable[[], FakeEngine]]:
        yield lambda: FakeEngine(start_error="no such model")

    monkeypatch.setattr(FakeEngines, "ready", ready)
    text = failure_of(site.run(data_parallelism=2), "merge_outputs")
    assert "3 of 3 shards are not committed" in text
    assert "replica 0: no such model" in text
    assert "replica 1: no such model" in text


def test_a_model_that_changed_since_the_items_were_sharded_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["first weights"])
    monkeypatch.setattr(FakeEngines, "identity", lambda *_: next(names, "other weights"))
    text = failure_of(site.run(), "run_inference[replica_00]")
    assert "is not what it was when the items were sharded" in text


def test_an_engine_that_died_on_the_way_is_told_in_the_summary(site: Site) -> None:
    assert site.run(content=[chat("fine"), chat("[[fake:die 1]]")]).success
    assert [record.get("error") for record in site.records()] == [None, None]
    (summary,) = (site.folder / "home" / "jobs" / "job").rglob("summary.json")
    assert "the engine died 1 time and was started anew" in summary.read_text()


def test_a_replica_whose_pod_was_given_up_ends_and_the_merge_says_why(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str(uuid.uuid4())

    def lost(*_: object, **__: object) -> None:
        note = PodNote(
            step="run_inference[replica_00]",
            pod="dagster-step-1-x",
            reason="Unschedulable",
            message="no node takes it",
            kind="given up",
            at=datetime.now(UTC),
        )
        write_note(site.store, site.job_folder, run_id, note)
        raise RuntimeError("the pod is lost")

    monkeypatch.setattr(FakeEngines, "ready", lost)
    result = site.run(run_id=run_id)
    assert not result.success
    assert "replica 0: no node takes it" in failure_of(result, "merge_outputs")


def test_a_replica_with_nothing_left_to_do_asks_for_no_engine(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = FakeEngines.ready
    calls = []

    @contextmanager
    def only_once(self: FakeEngines, *given: Any, **named: Any) -> Iterator[Any]:
        calls.append(given)
        with ready(self, *given, **named) as make:
            yield make

    monkeypatch.setattr(FakeEngines, "ready", only_once)
    result = site.run(data_parallelism=2)  # one after the other, here
    assert result.success
    assert len(calls) == 1


def test_hardware_is_decided_once_where_it_counts(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    write_input(tmp_path, [chat("q")])
    site = Site(tmp_path, instance, enforce_hardware=True)
    result = site.run(gpus=2, gpu_type="nvidia-ampere-a10", memory="64Gi")
    assert result.success
    hardware = read_hardware(site.store, site.job_folder, result.run_id)
    assert hardware is not None
    assert (hardware.gpus, hardware.memory, hardware.tensor_parallel_size) == (2, 64 * 2**30, 2)
    assert read_hardware(site.store, site.job_folder, "another run") is None


def test_a_replica_that_keeps_failing_tells_why_it_gives_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def away(*_: object, **__: object) -> None:
        tries.append(1)
        raise ModelUnavailable("the hub does not answer")

    monkeypatch.setattr(FakeEngines, "ready", away)
    text = failure_of(site.run(), "merge_outputs")
    assert "replica 0: the request's model cannot be had: the hub does not answer" in text
    assert len(tries) == 3


def test_another_run_of_a_job_does_not_take_its_hardware_away(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    site = Site(tmp_path, instance)
    one, other = Hardware(1, 1, 1, 1, None, 1, 1, 1, ()), Hardware(2, 2, 2, 2, None, 1, 1, 1, ())
    write_hardware(site.store, site.job_folder, "one", one)
    write_hardware(site.store, site.job_folder, "other", other)
    assert read_hardware(site.store, site.job_folder, "one") == one
