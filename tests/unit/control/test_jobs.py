"""Jobs put together from Dagster's runs and the job store."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batch_pipelines.api.job import JobStatus
from batch_pipelines.control.errors import DagsterError, NoSuchJob
from batch_pipelines.control.jobs import Jobs
from batch_pipelines.jobs.pod_notes import PodNote, write_note
from batch_pipelines.settings import Settings
from tests.support.fake_dagster import FakeDagster
from tests.support.job_records import JobRecords


@pytest.fixture
def dagster() -> FakeDagster:
    return FakeDagster()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def jobs(dagster: FakeDagster, settings: Settings) -> Jobs:
    return Jobs(dagster.client(), settings)


def test_a_running_job_has_stage_and_progress(dagster: FakeDagster, settings: Settings, jobs: Jobs) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    records.shard(10)
    records.report("inferring", done=4, rate=80.0)
    dagster.add_run("j", status="STARTED", steps={"run_inference[replica_00]": "IN_PROGRESS"})
    view = jobs.view("j")
    assert (view.job.status, view.stage, view.is_final) == (JobStatus.RUNNING, "inferring", False)
    assert view.progress is not None
    assert (view.progress.done, view.progress.total) == (4, 10)


def test_a_published_job_is_completed_with_its_counts_and_rate(
    dagster: FakeDagster, settings: Settings, jobs: Jobs, tmp_path: Path
) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    records.publish(tmp_path / "out.json", errors=tmp_path / "errors.jsonl")
    dagster.add_run("j", status="SUCCESS", steps={"run_inference[replica_00]": "SUCCESS"})
    view = jobs.view("j")
    assert view.job.status is JobStatus.COMPLETED
    assert view.job.metadata is not None
    assert view.job.metadata["items_failed"] == "1"
    assert view.job.metadata["tokens_per_second"] == "6.0"
    assert view.job.metadata["errors"] == (tmp_path / "errors.jsonl").as_uri()


def test_a_failed_job_tells_its_reason(dagster: FakeDagster, settings: Settings, jobs: Jobs) -> None:
    JobRecords(settings, "j").accept()
    run = dagster.add_run("j", status="FAILURE")
    run.events = [{"__typename": "RunFailureEvent", "message": "out of luck", "error": None}]
    assert (jobs.view("j").job.metadata or {})["reason"] == "out of luck"


def test_what_became_of_its_pods_is_a_reason_too(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    run = dagster.add_run("j", status="FAILURE")
    run.events = [{"__typename": "RunFailureEvent", "message": "a step failed", "error": None}]
    now = datetime.now(UTC)
    for step, reason, at in (("", "Evicted", now), ("shard_inputs", "OOMKilled", now - timedelta(minutes=1))):
        note = PodNote(step=step, pod="p", reason=reason, message=f"told {reason}", at=at)
        write_note(records.store, records.folder, run.run_id, note)
    assert (jobs.view("j").job.metadata or {})["reason"].splitlines() == [
        "shard_inputs: told OOMKilled",
        "told Evicted",
        "a step failed",
    ]


def test_a_job_launched_by_hand_with_a_broken_request_can_be_looked_at(
    dagster: FakeDagster, jobs: Jobs
) -> None:
    request = {
        "output_data_path": "o",
        "data_parallelism": 1000,
        "model_config": {"model": "m", "max_num_seqs": -1},
    }
    dagster.add_run("typed by hand/..", status="FAILURE", config=dagster.request_config(request))
    job = jobs.view("typed by hand/..").job
    assert (job.status, job.output_data_path, job.engine_config.model) == (JobStatus.FAILED, "o", "m")
    assert [listed.job_id for listed in jobs.recent(limit=5)] == ["typed by hand/.."]


def test_an_unknown_job_is_told_apart(jobs: Jobs) -> None:
    with pytest.raises(NoSuchJob):
        jobs.view("nope")


def test_recent_jobs_are_listed_once_each_by_their_newest_run(
    dagster: FakeDagster, settings: Settings, jobs: Jobs, tmp_path: Path
) -> None:
    for job_id in ("a", "b"):
        JobRecords(settings, job_id).accept()
        dagster.add_run(job_id, status="FAILURE", tags={"label/team": job_id})
    JobRecords(settings, "a").publish(tmp_path / "out.json", run_id="run-2")
    dagster.add_run("a", status="SUCCESS", tags={"label/team": "a"})
    dagster.add_run("other", job_name="another_job")
    listed = jobs.recent(limit=5)
    assert [(job.job_id, job.status.value) for job in listed] == [("b", "failed"), ("a", "completed")]
    assert [job.job_id for job in jobs.recent(limit=5, status=JobStatus.FAILED)] == ["b"]
    assert [job.job_id for job in jobs.recent(limit=5, labels={"team": "b"})] == ["b"]
    assert [job.job_id for job in jobs.recent(limit=1)] == ["a"]


def test_listing_goes_on_over_pages_until_enough_match(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    for number in range(250):
        JobRecords(settings, f"j{number}").accept()
        dagster.add_run(f"j{number}", status="CANCELED" if number < 2 else "QUEUED")
    assert [job.job_id for job in jobs.recent(limit=5, status=JobStatus.CANCELLED)] == ["j1", "j0"]


def test_cancelling_asks_dagster_once_and_leaves_ended_jobs_alone(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    JobRecords(settings, "j").accept()
    run = dagster.add_run("j", status="STARTED")
    assert jobs.cancel("j") is None
    assert run.status == "CANCELING"
    assert jobs.cancel("j") is None
    assert dagster.asked.count("Terminate") == 1
    run.status = "CANCELED"
    ended = jobs.cancel("j")
    assert ended is not None
    assert ended.status is JobStatus.CANCELLED


def test_a_job_between_two_runs_cannot_be_cancelled_yet(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    JobRecords(settings, "j").accept()
    dagster.add_run("j", status="FAILURE", tags={"dagster/will_retry": "true"})
    with pytest.raises(DagsterError, match="about to be retried"):
        jobs.cancel("j")


def test_a_run_that_published_nothing_itself_is_not_completed_by_an_earlier_output(
    dagster: FakeDagster, settings: Settings, jobs: Jobs, tmp_path: Path
) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    records.publish(tmp_path / "out.json", run_id="run-0")
    dagster.add_run("j", status="SUCCESS")
    assert jobs.view("j").job.status is JobStatus.COMPLETED
    dagster.add_run("j", status="SUCCESS")  # some of the steps, by hand
    assert jobs.view("j").job.status is JobStatus.UNKNOWN


def test_an_item_is_counted_once_when_its_shard_was_committed_since_the_last_report(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    records.shard(10)
    records.report("inferring", done=4)
    dagster.add_run("j", status="STARTED")
    assert jobs.view("j").progress is not None
    before = jobs.view("j").progress
    records.commit()
    after = jobs.view("j").progress
    assert before is not None
    assert after is not None
    assert (before.done, after.done, after.committed) == (4, 10, 10)


def test_a_job_from_before_a_rule_of_today_is_still_shown(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    body = records.store.read(records.folder.request).replace(b'"team"', b'"a name with spaces"')
    records.store.write(records.folder.request, body)
    dagster.add_run("j", status="STARTED")
    assert jobs.view("j").job.status is JobStatus.RUNNING
    assert [job.job_id for job in jobs.recent(limit=5)] == ["j"]


def test_what_pods_wait_for_is_told_while_they_do(
    dagster: FakeDagster, settings: Settings, jobs: Jobs
) -> None:
    records = JobRecords(settings, "j")
    records.accept()
    run = dagster.add_run("j", status="STARTED")
    note = PodNote(
        step="run_inference[replica_00]",
        pod="p",
        reason="Unschedulable",
        message="no node",
        kind="waiting",
        at=datetime.now(UTC),
    )
    write_note(records.store, records.folder, run.run_id, note)
    assert (jobs.view("j").job.metadata or {})["pods"] == "run_inference[replica_00]: no node"
    run.status = "FAILURE"
    failed = jobs.view("j").job.metadata or {}
    assert "pods" not in failed
    assert "no node" not in failed.get("reason", "")
