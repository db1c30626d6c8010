"""submit, status, wait, cancel, list: what they print, and the exit codes that scripts rely on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from batch_pipelines.run_config import request_of
from batch_pipelines.settings import Settings
from tests.support.fake_dagster import FakeDagster
from tests.support.job_records import JobRecords

Invoke = Callable[..., Result]

REQUEST: dict[str, Any] = {
    "input_data_path": "in.jsonl",
    "output_data_path": "out.json",
    "model_config": {"model": "tiny"},
}


@pytest.fixture
def request_file(tmp_path: Path) -> str:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    return str(path)


def after_looks(dagster: FakeDagster, looks: int, then: Callable[[], None]) -> None:
    """Let something happen once a job has been looked at a few times."""

    def on_ask(name: str) -> None:
        if name == "Run" and dagster.asked.count("Run") == looks:
            then()

    dagster.on_ask = on_ask


def job(dagster: FakeDagster, settings: Settings, status: str, job_id: str = "j") -> JobRecords:
    records = JobRecords(settings, job_id)
    records.accept()
    dagster.add_run(job_id, status=status)
    return records


def test_submit_prints_the_id_alone_and_resolves_paths_from_here(
    invoke: Invoke, dagster: FakeDagster, request_file: str, tmp_path: Path
) -> None:
    result = invoke("submit", request_file)
    assert result.exit_code == 0
    assert dagster.partitions == {result.stdout.strip()}
    assert request_of(dagster.runs[0].config)["input_data_path"] == str(tmp_path / "in.jsonl")


def test_submit_reads_stdin_and_prints_the_job_as_json(invoke: Invoke, dagster: FakeDagster) -> None:
    result = invoke("--json", "submit", "-", stdin=json.dumps(REQUEST))
    printed = json.loads(result.stdout)
    assert (printed["status"], printed["model_config"]) == ("queued", {"model": "tiny"})
    assert dagster.partitions == {printed["job_id"]}


def test_an_invalid_request_lists_every_error_and_exits_with_2(invoke: Invoke, dagster: FakeDagster) -> None:
    broken = json.dumps({"model_config": {}, "output_data_path": 3, "content": []})
    result = invoke("submit", "-", stdin=broken)
    assert result.exit_code == 2
    assert result.stdout == ""
    for pointer in ("/model_config/model", "/output_data_path"):
        assert pointer in result.stderr
    as_json = json.loads(invoke("submit", "-", "--json", stdin=broken).stdout)["error"]
    assert as_json["type"] == "invalid_request"
    assert {"/model_config/model", "/output_data_path"} <= {error["pointer"] for error in as_json["errors"]}
    assert dagster.runs == []


def test_wrong_usage_exits_with_2(invoke: Invoke) -> None:
    assert invoke("submit", "no-such-file.json").exit_code == 2
    assert invoke("list", "--label", "team").exit_code == 2
    assert invoke("no-such-command").exit_code == 2


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MAX_LOCAL_REPLICAS", "many", "BATCH_PIPELINES_MAX_LOCAL_REPLICAS: "),
        ("PRIORITY_CLASSES", '{"high":', "priority_classes"),
        ("PRIORITY_CLASSES", '{"high": "Bad Class!"}', "BATCH_PIPELINES_PRIORITY_CLASSES at high: "),
        ("POD_LABELS", '["team a"]', "BATCH_PIPELINES_POD_LABELS at [0]: "),
        ("STEP_SERVICE_ACCOUNT", "Bad_Name", "BATCH_PIPELINES_STEP_SERVICE_ACCOUNT: "),
        ("REPLICA_IMAGE", "  ", "BATCH_PIPELINES_REPLICA_IMAGE: "),
        ("CLUSTER", "aks", "BATCH_PIPELINES_CLUSTER: "),
        ("CLAIM_TTL_SEC", "1", "claim_ttl_sec must be"),
    ],
)
def test_broken_settings_exit_with_2_and_name_the_variable(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"BATCH_PIPELINES_{name}", value)
    result = invoke("status", "j")
    assert result.exit_code == 2
    assert says in result.stderr
    assert "pydantic.dev" not in result.stderr


@pytest.mark.parametrize("command", ["dev", "demo"])
def test_a_dagster_on_this_machine_cannot_run_pods(
    invoke: Invoke, dagster: FakeDagster, monkeypatch: pytest.MonkeyPatch, request_file: str, command: str
) -> None:
    dagster.down = True
    monkeypatch.setenv("BATCH_PIPELINES_EXECUTOR", "kubernetes")
    result = invoke(command, *([request_file] if command == "demo" else []))
    assert result.exit_code == 2
    assert "BATCH_PIPELINES_EXECUTOR is kubernetes" in result.stderr


def test_without_dagster_commands_exit_with_4(invoke: Invoke, dagster: FakeDagster) -> None:
    dagster.down = True
    result = invoke("list")
    assert result.exit_code == 4
    assert "make dev" in result.stderr


def test_url_names_another_dagster(invoke: Invoke, dagster: FakeDagster) -> None:
    dagster.down = True
    assert "http://elsewhere:1" in invoke("status", "j", "--url", "http://elsewhere:1").stderr


@pytest.mark.parametrize("command", ["status", "wait", "cancel", "output"])
def test_an_unknown_job_exits_with_5(invoke: Invoke, command: str) -> None:
    result = invoke(command, "nope", "--json")
    assert result.exit_code == 5
    assert json.loads(result.stdout)["error"]["type"] == "no_such_job"


@pytest.mark.parametrize(("status", "code"), [("SUCCESS", 0), ("FAILURE", 1), ("CANCELED", 3)])
def test_wait_exits_by_the_jobs_end(
    invoke: Invoke, dagster: FakeDagster, settings: Settings, tmp_path: Path, status: str, code: int
) -> None:
    records = job(dagster, settings, "QUEUED")

    def end() -> None:
        records.publish(tmp_path / "out.json")
        dagster.runs[0].status = status

    after_looks(dagster, 3, end)
    result = invoke("wait", "j", "--json")
    assert result.exit_code == code
    expected = {"SUCCESS": "completed", "FAILURE": "failed", "CANCELED": "cancelled"}[status]
    assert json.loads(result.stdout)["status"] == expected
    assert result.stderr.splitlines()[0] == "queued"


def test_submit_and_wait_in_one_shows_stages_and_prints_the_id_only(
    invoke: Invoke, dagster: FakeDagster, settings: Settings, request_file: str, tmp_path: Path
) -> None:
    def run() -> None:
        dagster.runs[0].status = "STARTED"
        dagster.runs[0].steps = {"validate_request": "IN_PROGRESS"}
        after_looks(dagster, 4, end)

    def end() -> None:
        JobRecords(settings, next(iter(dagster.partitions))).publish(tmp_path / "out.json", total=7)
        dagster.runs[0].status = "SUCCESS"

    after_looks(dagster, 2, run)
    result = invoke("submit", request_file, "--wait")
    assert result.exit_code == 0
    assert {result.stdout.strip()} == dagster.partitions
    lines = result.stderr.splitlines()
    assert lines[:3] == ["queued", "validating", "completed  7/7 items"]
    assert f"output  {tmp_path / 'out.json'}" in result.stderr


def test_a_failed_jobs_reason_is_printed(invoke: Invoke, dagster: FakeDagster, settings: Settings) -> None:
    job(dagster, settings, "FAILURE")
    dagster.runs[0].events = [{"__typename": "RunFailureEvent", "message": "it was the moon", "error": None}]
    assert "it was the moon" in invoke("wait", "j").stderr
    assert "it was the moon" in invoke("status", "j").stdout


def test_waiting_too_long_exits_with_6_and_says_that_the_job_goes_on(
    invoke: Invoke, dagster: FakeDagster, settings: Settings
) -> None:
    job(dagster, settings, "STARTED")
    result = invoke("wait", "j", "--timeout", "0", "--json")
    assert result.exit_code == 6
    assert "goes on" in result.stderr
    assert json.loads(result.stdout)["status"] == "running"
    assert dagster.runs[0].status == "STARTED"


def test_an_interrupt_leaves_the_job_running_and_exits_with_130(
    invoke: Invoke, dagster: FakeDagster, settings: Settings
) -> None:
    job(dagster, settings, "STARTED")

    def interrupt() -> None:
        raise KeyboardInterrupt

    after_looks(dagster, 2, interrupt)
    result = invoke("wait", "j")
    assert result.exit_code == 130
    assert "goes on" in result.stderr
    assert dagster.runs[0].status == "STARTED"


def test_waiting_outlasts_a_restart_of_the_webserver(
    invoke: Invoke, dagster: FakeDagster, settings: Settings, tmp_path: Path
) -> None:
    records = job(dagster, settings, "STARTED")

    def on_ask(name: str) -> None:
        dagster.down = name == "Runs" and dagster.asked.count("Runs") in (2, 3)
        if dagster.asked.count("Runs") == 4:
            records.publish(tmp_path / "out.json")
            dagster.runs[0].status = "SUCCESS"

    dagster.on_ask = on_ask
    assert invoke("wait", "j").exit_code == 0


def test_cancel_returns_once_the_request_is_accepted(
    invoke: Invoke, dagster: FakeDagster, settings: Settings
) -> None:
    job(dagster, settings, "STARTED")
    result = invoke("cancel", "j", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["status"] == "running"
    assert dagster.runs[0].status == "CANCELING"


def test_cancel_can_wait_for_the_end(invoke: Invoke, dagster: FakeDagster, settings: Settings) -> None:
    job(dagster, settings, "STARTED")
    after_looks(dagster, 4, lambda: setattr(dagster.runs[0], "status", "CANCELED"))
    result = invoke("cancel", "j", "--wait")
    assert (result.exit_code, dagster.runs[0].status) == (0, "CANCELED")
    assert "cancelling" in result.stderr


def test_cancelling_a_job_that_completes_first_exits_as_it_ended(
    invoke: Invoke, dagster: FakeDagster, settings: Settings
) -> None:
    job(dagster, settings, "STARTED")
    after_looks(dagster, 3, lambda: setattr(dagster.runs[0], "status", "FAILURE"))
    assert invoke("cancel", "j", "--wait").exit_code == 1


def test_cancelling_an_ended_job_changes_nothing(
    invoke: Invoke, dagster: FakeDagster, settings: Settings
) -> None:
    job(dagster, settings, "FAILURE")
    result = invoke("cancel", "j")
    assert (result.exit_code, dagster.runs[0].status) == (0, "FAILURE")
    assert "had ended before: failed" in result.stderr


def test_status_shows_stage_counts_and_labels(
    invoke: Invoke, dagster: FakeDagster, settings: Settings
) -> None:
    records = job(dagster, settings, "STARTED")
    records.shard(10)
    records.report("inferring", done=4, failed=1, rate=80.0)
    dagster.runs[0].steps = {"run_inference[replica_00]": "IN_PROGRESS"}
    printed = dict(line.split("  ", 1) for line in invoke("status", "j").stdout.splitlines())
    facts = {name: value.strip() for name, value in printed.items()}
    assert facts["status"] == "running (inferring)"
    assert (facts["items done"], facts["items total"], facts["items failed"]) == ("4", "10", "1")
    assert facts["label/team"] == "a"
    assert facts["tokens per second"] == "80.0"


def test_list_prints_a_row_a_job(invoke: Invoke, dagster: FakeDagster, settings: Settings) -> None:
    job(dagster, settings, "STARTED", "a")
    job(dagster, settings, "CANCELED", "b")
    rows = [line.split()[:2] for line in invoke("list").stdout.splitlines()]
    assert rows == [["JOB", "STATUS"], ["b", "cancelled"], ["a", "running"]]
    only = json.loads(invoke("list", "--json", "--status", "running").stdout)
    assert [each["job_id"] for each in only] == ["a"]


def test_an_empty_list_is_still_json(invoke: Invoke) -> None:
    assert json.loads(invoke("list", "--json").stdout) == []
    assert invoke("list").stderr == "no jobs\n"
