"""From shards to a published output: complete, in order, resumable, one record an item."""

import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.fake import FakeEngine, read_journal
from batch_pipelines.engines.protocol import EngineStartError
from batch_pipelines.jobs.claims import Worker
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.jobs.parts import PartDamaged, committed_shards
from batch_pipelines.jobs.progress import job_progress
from batch_pipelines.stages.adopt import adopt_parts, mark_unfinished
from batch_pipelines.stages.job import Job, JobFailed
from batch_pipelines.stages.merge import MergeIncomplete, Summary, errors_path, merge_parts
from batch_pipelines.stages.preview import preview
from tests.support.jobs import TIMING, chat, infer, make_job, make_request, output_of, shard, write_input


def texts(records: list[Any]) -> list[str]:
    return [record["choices"][0]["message"]["content"].split(": ", 1)[1] for record in records]


@pytest.mark.parametrize("name", ["output.json", "output.jsonl"])
def test_output_has_every_answer_in_input_order(tmp_path: Path, name: str) -> None:
    job = make_job(tmp_path)
    request = make_request(tmp_path, output_data_path=str(tmp_path / "data" / name))
    write_input(tmp_path, [chat(f"q {n}", custom_id=f"id-{n}") for n in range(50)])
    manifest = shard(job, request)
    infer(job, request, manifest)
    summary = merge_parts(job, manifest, request.output_data_path)
    records = output_of(request)
    assert texts(records) == [f"q {n}" for n in range(50)]
    assert [record["custom_id"] for record in records] == [f"id-{n}" for n in range(50)]
    assert (summary.total, summary.succeeded, summary.failed, summary.errors) == (50, 50, 0, None)
    assert summary.prompt_tokens == sum(record["usage"]["prompt_tokens"] for record in records)
    assert summary.completion_tokens == sum(record["usage"]["completion_tokens"] for record in records)
    assert Summary.model_validate_json(job.store.read(job.folder.summary)) == summary


def test_failed_items_have_an_error_record_in_place_and_a_line_in_the_errors_file(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(
        tmp_path,
        [
            chat("a"),
            b"{broken",
            chat("[[fake:error 400 too long]]", custom_id="x"),
            chat("[[fake:die]]"),
            chat("b"),
        ],
    )
    manifest = shard(job, request)
    infer(job, request, manifest, engine=FakeEngine(delay_sec=0.01))
    summary = merge_parts(job, manifest, request.output_data_path)
    records = output_of(request)
    assert [("error" in record) for record in records] == [False, True, True, True, False]
    assert all(set(record["error"]) == {"message", "type", "param", "code"} for record in records[1:4])
    assert records[2]["custom_id"] == "x"
    errors = [
        orjson.loads(line) for line in Path(errors_path(request.output_data_path)).read_bytes().splitlines()
    ]
    assert [(error["index"], error["line"]) for error in errors] == [(1, 2), (2, 3), (3, 4)]
    assert [error["error"] for error in errors] == [record["error"] for record in records[1:4]]
    assert (summary.total, summary.succeeded, summary.failed) == (5, 2, 3)
    assert summary.errors is not None


def test_errors_file_of_an_earlier_job_does_not_outlive_a_clean_one(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    for job_id, items in (("one", [b"{broken", chat("a")]), ("two", [chat("a")])):
        job = make_job(tmp_path, job_id)
        write_input(tmp_path, items)
        manifest = shard(job, request)
        infer(job, request, manifest)
        merge_parts(job, manifest, request.output_data_path)
    assert not Path(errors_path(request.output_data_path)).exists()


def test_engine_is_not_started_when_no_item_needs_it(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [b"{broken", b"[1]", b"7"])
    manifest = shard(job, request)
    engine = FakeEngine()
    result = infer(job, request, manifest, engine=engine)
    assert (engine.starts, result.engine_starts, result.failed) == (0, 0, 3)


@pytest.mark.parametrize("name", ["output.json", "output.jsonl"])
def test_job_of_no_items_publishes_an_empty_output(tmp_path: Path, name: str) -> None:
    job = make_job(tmp_path)
    request = make_request(tmp_path, content=[], output_data_path=str(tmp_path / "data" / name))
    manifest = shard(job, request)
    infer(job, request, manifest)
    assert merge_parts(job, manifest, request.output_data_path).total == 0
    assert output_of(request) == []


def test_nothing_is_published_while_a_shard_is_missing(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q{n}") for n in range(20)])
    manifest = shard(job, request)
    infer(job, request, manifest)
    job.store.delete(job.folder.part(manifest.fingerprint, 1))
    with pytest.raises(MergeIncomplete, match=r"1 of 3 shards are not committed \(first: 00001\)"):
        merge_parts(job, manifest, request.output_data_path)
    assert list((tmp_path / "data").iterdir()) == [tmp_path / "data" / "input.jsonl"]


@pytest.mark.parametrize("damage", ["a record short", "another shard's", "cut off"])
def test_nothing_is_published_when_a_part_is_damaged(tmp_path: Path, damage: str) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q{n}") for n in range(20)])
    manifest = shard(job, request)
    infer(job, request, manifest)
    part = job.folder.part(manifest.fingerprint, 2)
    lines = job.store.read(part).splitlines(keepends=True)
    data = {
        "a record short": b"".join(lines[1:]),
        "another shard's": job.store.read(job.folder.part(manifest.fingerprint, 1)),
        "cut off": b"".join(lines)[:-20],
    }[damage]
    job.store.write(part, data)
    with pytest.raises(PartDamaged):
        merge_parts(job, manifest, request.output_data_path)
    assert list((tmp_path / "data").iterdir()) == [tmp_path / "data" / "input.jsonl"]


def test_two_replicas_compute_each_item_once(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    journal = tmp_path / "journal"
    write_input(tmp_path, [chat(f"q {n}") for n in range(100)])
    manifest = shard(job, request)
    threads = [
        threading.Thread(
            target=infer,
            args=(job, request, manifest),
            kwargs={
                "engine": FakeEngine(max_in_flight=4, delay_sec=0.002, journal=journal),
                "worker": Worker("run", replica, 0),
                "replicas": 2,
            },
        )
        for replica in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    merge_parts(job, manifest, request.output_data_path)
    assert texts(list(output_of(request))) == [f"q {n}" for n in range(100)]
    assert sorted(entry.prompt for entry in read_journal(journal)) == sorted(f"q {n}" for n in range(100))


class Stop(BaseException):
    """Stands for an interrupt in the step's main thread."""


def stop_after(job: Any, manifest: Any, shards: int) -> Any:
    def check() -> None:
        if len(committed_shards(job.store, job.folder, manifest.fingerprint)) >= shards:
            raise Stop

    return check


def interrupt(
    job: Job, request: CreateBatchCompletionsV2Request, manifest: Manifest, *, after_shards: int
) -> None:
    """Run a replica and interrupt it once so many shards are committed."""
    with pytest.raises(Stop):
        infer(
            job,
            request,
            manifest,
            engine=FakeEngine(max_in_flight=2, delay_sec=0.02),
            check=stop_after(job, manifest, after_shards),
        )


def test_interrupt_stops_the_engine_and_keeps_committed_shards(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(80)])
    manifest = shard(job, request)
    engine = FakeEngine(max_in_flight=2, delay_sec=0.02)
    with pytest.raises(Stop):
        infer(job, request, manifest, engine=engine, check=stop_after(job, manifest, 2))
    committed = committed_shards(job.store, job.folder, manifest.fingerprint)
    assert 2 <= len(committed) < 10
    assert not engine._running


def test_retry_computes_only_what_was_not_committed(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(80)])
    manifest = shard(job, request)
    interrupt(job, request, manifest, after_shards=2)
    committed = committed_shards(job.store, job.folder, manifest.fingerprint)
    journal = tmp_path / "journal"
    infer(job, request, manifest, engine=FakeEngine(journal=journal), worker=Worker("run", 0, 1))
    merge_parts(job, manifest, request.output_data_path)
    expected = [f"q {8 * s + n}" for s in range(10) if s not in committed for n in range(8)]
    assert sorted(entry.prompt for entry in read_journal(journal)) == sorted(expected)
    assert texts(list(output_of(request))) == [f"q {n}" for n in range(80)]


def test_replica_takes_over_the_shards_of_one_that_went_silent(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(80)])
    manifest = shard(job, request)
    interrupt(job, request, manifest, after_shards=1)
    result = infer(job, request, manifest, worker=Worker("run", 1, 0), replicas=2)
    assert result.shards >= 1
    assert merge_parts(job, manifest, request.output_data_path).total == 80


def test_engine_that_does_not_start_fails_the_replica_with_its_log(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("a")])
    manifest = shard(job, request)
    with pytest.raises(EngineStartError, match="no such model"):
        infer(job, request, manifest, engine=FakeEngine(start_error="no such model"))


def test_progress_adds_what_is_under_way_to_what_is_committed(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    assert job_progress(job.store, job.folder, ttl=TIMING.claim_ttl) is None
    write_input(tmp_path, [chat("[[fake:error 400 no]]" if n % 3 else f"q {n}") for n in range(24)])
    manifest = shard(job, request)
    seen = []

    def look() -> None:
        progress = job_progress(job.store, job.folder, ttl=TIMING.claim_ttl)
        assert progress is not None
        seen.append(progress)

    infer(job, request, manifest, engine=FakeEngine(max_in_flight=2, delay_sec=0.15), check=look)
    look()
    assert [progress.total for progress in seen] == [24] * len(seen)
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert [progress.failed for progress in seen] == sorted(progress.failed for progress in seen)
    assert seen[-1].failed == 16
    assert any(progress.committed < progress.done for progress in seen)
    assert (seen[-1].done, seen[-1].committed, seen[-1].shards_committed, seen[-1].workers) == (24, 24, 3, {})


def test_abandoned_job_with_the_same_work_is_taken_over(tmp_path: Path) -> None:
    old, request = make_job(tmp_path, "old"), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(40)])
    manifest = shard(old, request)
    mark_unfinished(old, manifest)
    interrupt(old, request, manifest, after_shards=2)
    kept = len(committed_shards(old.store, old.folder, manifest.fingerprint))

    new = make_job(tmp_path, "new")
    manifest = shard(new, request)
    mark_unfinished(new, manifest)
    assert adopt_parts(new, manifest, is_abandoned=lambda job_id: job_id != "old") == 0
    assert adopt_parts(new, manifest, is_abandoned=lambda job_id: job_id == "old") == kept
    journal = tmp_path / "journal"
    infer(new, request, manifest, engine=FakeEngine(journal=journal))
    merge_parts(new, manifest, request.output_data_path)
    assert len(read_journal(journal)) == 40 - 8 * kept
    assert texts(list(output_of(request))) == [f"q {n}" for n in range(40)]


def test_work_of_a_completed_job_or_of_another_fingerprint_is_not_taken_over(tmp_path: Path) -> None:
    done, request = make_job(tmp_path, "done"), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(10)])
    manifest = shard(done, request)
    mark_unfinished(done, manifest)
    infer(done, request, manifest)
    other = make_job(tmp_path, "other")
    other_manifest = shard(other, make_request(tmp_path, model_config={"model": "fake", "seed": 3}))
    assert adopt_parts(other, other_manifest, is_abandoned=lambda _: True) == 0
    merge_parts(done, manifest, request.output_data_path)
    again = make_job(tmp_path, "again")
    assert adopt_parts(again, shard(again, request), is_abandoned=lambda _: True) == 0


def test_preview_shows_the_first_prompts_and_answers(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("hello there"), b"{broken", chat("x" * 1000)])
    manifest = shard(job, request)
    infer(job, request, manifest)
    rows = preview(job.store, job.folder, manifest)
    assert rows[0].prompt == "hello there"
    assert rows[0].answer.endswith(": hello there")
    assert rows[1].answer.startswith("error: ")
    assert len(rows[2].prompt) == 200


def test_work_that_was_taken_over_and_published_is_used_up(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(40)])
    old = make_job(tmp_path, "old")
    manifest = shard(old, request)
    mark_unfinished(old, manifest)
    interrupt(old, request, manifest, after_shards=2)
    for job_id, adopts in (("second", True), ("third", False)):
        job = make_job(tmp_path, job_id)
        manifest = shard(job, request)
        mark_unfinished(job, manifest)
        assert bool(adopt_parts(job, manifest, is_abandoned=lambda _: True)) is adopts
        infer(job, request, manifest)
        merge_parts(job, manifest, request.output_data_path)


def test_damaged_part_is_removed_and_computed_again_by_the_next_run(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(20)])
    manifest = shard(job, request)
    infer(job, request, manifest)
    job.store.write(job.folder.part(manifest.fingerprint, 1), b"{}\n")
    with pytest.raises(PartDamaged):
        merge_parts(job, manifest, request.output_data_path)
    result = infer(job, request, manifest, worker=Worker("next-run", 0, 0))
    assert result.items == 8
    assert merge_parts(job, manifest, request.output_data_path).total == 20


def test_part_that_a_crash_left_empty_does_not_count_as_committed(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(20)])
    manifest = shard(job, request)
    job.store.write(job.folder.part(manifest.fingerprint, 0), b"")
    infer(job, request, manifest)
    assert merge_parts(job, manifest, request.output_data_path).total == 20


def test_damaged_part_of_an_abandoned_job_is_not_taken_over(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(20)])
    old, new = make_job(tmp_path, "old"), make_job(tmp_path, "new")
    manifest = shard(old, request)
    mark_unfinished(old, manifest)
    infer(old, request, manifest)
    old.store.write(old.folder.part(manifest.fingerprint, 1), b"{}\n")
    manifest = shard(new, request)
    mark_unfinished(new, manifest)
    assert adopt_parts(new, manifest, is_abandoned=lambda _: True) == 2


def test_time_limit_ends_the_merge_and_nothing_is_published(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat(f"q {n}") for n in range(20)])
    manifest = shard(job, request)
    infer(job, request, manifest)

    def over() -> None:
        raise JobFailed("max_runtime_sec has passed")

    with pytest.raises(JobFailed):
        merge_parts(job, manifest, request.output_data_path, check=over)
    assert not Path(request.output_data_path).exists()


def test_replica_that_holds_much_waits_before_it_claims_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batch_pipelines.feeding.replica._OPEN_BYTES", 2000)
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("x" * 500) for _ in range(64)])
    manifest = shard(job, request)
    infer(job, request, manifest, engine=FakeEngine(max_in_flight=64, delay_sec=0.001))
    assert merge_parts(job, manifest, request.output_data_path).total == 64
