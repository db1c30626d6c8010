"""What runs and the job store say of a job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from batch_pipelines import ops
from batch_pipelines.api.job import JobStatus
from batch_pipelines.api.parse import parse_request
from batch_pipelines.control.runs import Run, Step
from batch_pipelines.jobs.progress import JobProgress
from batch_pipelines.run_config import ASSET, JOB
from batch_pipelines.status import FINAL, STATUS_OF_RUN, job_of, stage_of, status_of, will_be_retried

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
REQUEST = parse_request(
    {
        "input_data_path": "s3://b/in.jsonl",
        "output_data_path": "s3://b/out.json",
        "labels": {"team": "a"},
        "max_runtime_sec": 60,
        "model_config": {"model": "m"},
    }
)


def run(
    status: str,
    *,
    steps: tuple[str, ...] = (),
    minute: int = 0,
    started: bool = True,
    tags: dict[str, str] | None = None,
) -> Run:
    at = START + timedelta(minutes=minute)
    return Run(
        run_id=f"run-{minute}",
        status=status,
        job_name=JOB,
        tags={f"dagster/{name}": value for name, value in (tags or {}).items()},
        created_at=at,
        started_at=at + timedelta(seconds=30) if started else None,
        ended_at=at + timedelta(seconds=50) if status in ("SUCCESS", "FAILURE", "CANCELED") else None,
        steps={f"{ASSET}.{step}": Step("IN_PROGRESS") for step in steps},
    )


def progress(*states: str, done: int = 0) -> JobProgress:
    return JobProgress(
        total=10,
        committed=0,
        done=done,
        failed=1,
        prompt_tokens=5,
        completion_tokens=7,
        tokens_per_second=12.34,
        shards_total=2,
        shards_committed=1,
        workers={f"w{number}": state for number, state in enumerate(states)},
    )


def test_every_run_status_of_dagster_is_mapped_and_no_other() -> None:
    assert set(STATUS_OF_RUN) == {status.name for status in dg.DagsterRunStatus}


@pytest.mark.parametrize("status", [status.name for status in dg.DagsterRunStatus])
def test_a_job_is_final_exactly_when_its_run_is(status: str) -> None:
    finished = dg.DagsterRunStatus[status] in (
        dg.DagsterRunStatus.SUCCESS,
        dg.DagsterRunStatus.FAILURE,
        dg.DagsterRunStatus.CANCELED,
        dg.DagsterRunStatus.MANAGED,  # of no launcher's; nothing of ours will change it
    )
    assert (status_of(run(status), published=True) in FINAL) is finished


@pytest.mark.parametrize("tags", [{"will_retry": "true"}, {"auto_retry_run_id": "next"}])
def test_a_failure_that_is_retried_is_not_final(tags: dict[str, str]) -> None:
    failed = run("FAILURE", tags=tags)
    assert will_be_retried(failed)
    assert status_of(failed, published=False) is JobStatus.QUEUED
    assert stage_of(failed, None) == "waiting for a retry"


def test_a_failure_that_is_not_retried_is_final() -> None:
    assert status_of(run("FAILURE", tags={"will_retry": "false"}), published=False) is JobStatus.FAILED


def test_success_without_a_published_output_is_not_completion() -> None:
    assert status_of(run("SUCCESS"), published=False) is JobStatus.UNKNOWN
    job = job_of("j", REQUEST, [run("SUCCESS")])
    assert job.metadata is not None
    assert "no summary" in job.metadata["reason"]


def test_an_unheard_of_run_status_is_unknown() -> None:
    assert status_of(run("BRAND_NEW"), published=False) is JobStatus.UNKNOWN


def test_the_steps_named_here_are_the_ops_of_the_asset() -> None:
    named = {"validate_request", "shard_inputs", "run_inference", "merge_outputs"}
    assert {getattr(ops, name).name for name in ops.__all__} == named


@pytest.mark.parametrize(
    ("status", "steps", "workers", "stage"),
    [
        ("QUEUED", (), None, "queued"),
        ("STARTED", (), None, "starting"),
        ("STARTED", ("validate_request",), None, "validating"),
        ("STARTED", ("validate_request", "shard_inputs"), None, "sharding"),
        ("STARTED", ("shard_inputs", "run_inference[replica_00]"), progress(), "starting the engine"),
        ("STARTED", ("run_inference[replica_00]",), progress("starting"), "starting the engine"),
        ("STARTED", ("run_inference[replica_00]",), progress("starting", "inferring"), "inferring"),
        (
            "STARTED",
            ("run_inference[replica_00]",),
            progress("waiting for others' shards", done=9),
            "inferring",
        ),
        (
            "STARTED",
            ("run_inference[replica_00]",),
            progress("starting the engine", done=9),
            "starting the engine",
        ),
        ("STARTED", ("run_inference[replica_00]", "merge_outputs"), progress(done=10), "merging"),
        ("CANCELING", ("run_inference[replica_00]",), progress("inferring"), "cancelling"),
        ("SUCCESS", (), None, "completed"),
    ],
)
def test_stage_follows_the_furthest_step(
    status: str, steps: tuple[str, ...], workers: JobProgress | None, stage: str
) -> None:
    assert stage_of(run(status, steps=steps), workers) == stage


def test_the_newest_run_decides_and_the_oldest_dates_the_job() -> None:
    job = job_of(
        "j", REQUEST, [run("STARTED", minute=5), run("FAILURE", minute=0, tags={"will_retry": "true"})]
    )
    assert job.status is JobStatus.RUNNING
    assert job.created_at == "2026-11-30T12:00:00Z"
    assert job.completed_at is None
    assert job.metadata is not None
    assert job.metadata["run_id"] == "run-5"
    assert job.metadata["runs"] == "2"


def test_an_automatic_retry_goes_on_with_the_first_runs_clock() -> None:
    retried = [
        run("STARTED", minute=5, tags={"retry_number": "1"}),
        run("FAILURE", minute=0, tags={"will_retry": "true"}),
    ]
    assert job_of("j", REQUEST, retried).expires_at == "2026-11-30T12:01:30Z"


def test_a_run_started_by_a_person_has_a_clock_of_its_own() -> None:
    again = [run("STARTED", minute=5), run("FAILURE", minute=0)]
    assert job_of("j", REQUEST, again).expires_at == "2026-11-30T12:06:30Z"


def test_a_queued_job_expires_counting_from_its_submission() -> None:
    assert job_of("j", REQUEST, [run("QUEUED", started=False)]).expires_at == "2026-11-30T12:01:00Z"


def test_metadata_is_flat_text_with_labels_counts_and_rate() -> None:
    job = job_of("j", REQUEST, [run("STARTED")], progress=progress("inferring", done=4))
    assert job.metadata == {
        "label/team": "a",
        "run_id": "run-0",
        "runs": "1",
        "items_total": "10",
        "items_done": "4",
        "items_failed": "1",
        "prompt_tokens": "5",
        "completion_tokens": "7",
        "shards_total": "2",
        "shards_committed": "1",
        "tokens_per_second": "12.3",
        "replicas": "1",
    }


def test_a_failed_job_says_why_and_when() -> None:
    job = job_of("j", REQUEST, [run("FAILURE")], reason="no GPU")
    assert job.completed_at == "2026-11-30T12:00:50Z"
    assert job.metadata is not None
    assert job.metadata["reason"] == "no GPU"


def test_a_failure_that_may_be_retried_is_none_until_dagster_has_decided() -> None:
    tags = {"dagster/max_retries": "2"}
    just_now = replace(run("FAILURE"), tags=tags, ended_at=datetime.now(UTC))
    assert status_of(just_now, published=False) is JobStatus.QUEUED
    long_ago = replace(just_now, ended_at=datetime.now(UTC) - timedelta(minutes=5))
    assert status_of(long_ago, published=False) is JobStatus.FAILED
    decided = replace(just_now, tags=tags | {"dagster/will_retry": "false"})
    assert status_of(decided, published=False) is JobStatus.FAILED
    not_to_be = replace(just_now, tags={"dagster/max_retries": "0"})
    assert status_of(not_to_be, published=False) is JobStatus.FAILED
