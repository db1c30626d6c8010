"""The client turns Dagster's answers into values and errors."""

import time
from typing import Any

import pytest

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.errors import DagsterError, DagsterUnreachable
from batch_pipelines.run_config import ASSET, PARTITION_TAG
from tests.support.fake_dagster import FakeDagster


@pytest.fixture
def dagster() -> FakeDagster:
    return FakeDagster()


@pytest.fixture
def client(dagster: FakeDagster) -> DagsterClient:
    return dagster.client()


def stack(*fields: str | int) -> dict[str, Any]:
    entries = [{"listIndex": f} if isinstance(f, int) else {"fieldName": f} for f in fields]
    return {"entries": entries}


def test_adding_a_partition_twice_is_fine(dagster: FakeDagster, client: DagsterClient) -> None:
    client.add_partition("a")
    client.add_partition("a")
    assert dagster.partitions == {"a"}


def test_config_errors_become_pointers_into_the_request(dagster: FakeDagster, client: DagsterClient) -> None:
    base = ("ops", ASSET, "config")
    dagster.config_errors = [
        {
            "__typename": "FieldNotDefinedConfigError",
            "message": "m",
            "stack": stack(*base),
            "fieldName": "bogus",
        },
        {
            "__typename": "MissingFieldConfigError",
            "message": "m",
            "stack": stack(*base, "model_config"),
            "field": {"name": "model"},
        },
        {
            "__typename": "MissingFieldsConfigError",
            "message": "m",
            "stack": stack(*base),
            "fields": [{"name": "model_config"}, {"name": "output_data_path"}],
        },
        {
            "__typename": "RuntimeMismatchConfigError",
            "message": "not an int",
            "stack": stack(*base, "content", 3, "n"),
        },
        {
            "__typename": "RuntimeMismatchConfigError",
            "message": "not text",
            "stack": {"entries": [*stack(*base, "labels")["entries"], {"mapKey": "a/b"}]},
        },
        {"__typename": "RuntimeMismatchConfigError", "message": "too many", "stack": stack("execution")},
    ]
    with pytest.raises(RequestInvalid) as caught:
        client.launch({}, {PARTITION_TAG: "j"})
    assert caught.value.errors == [
        FieldError("/bogus", "unknown field"),
        FieldError("/model_config/model", "is required"),
        FieldError("/model_config", "is required"),
        FieldError("/output_data_path", "is required"),
        FieldError("/content/3/n", "not an int"),
        FieldError("/labels/a~1b", "not text"),
        FieldError("", "run config at execution: too many"),
    ]


def test_another_refusal_is_an_error_with_dagsters_words(dagster: FakeDagster, client: DagsterClient) -> None:
    dagster.launch_error = "no such job"
    with pytest.raises(DagsterError, match="did not launch the job: no such job"):
        client.launch({}, {PARTITION_TAG: "j"})


def test_runs_of_a_job_come_newest_first_and_without_other_assets_runs(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    for _ in range(2):
        dagster.add_run("a")
    dagster.add_run("a", job_name="another_job")
    dagster.add_run("b")
    assert [run.run_id for run in client.runs_of("a")] == ["run-1", "run-0"]


def test_a_refused_connection_names_the_address_and_the_way_out(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    dagster.down = True
    with pytest.raises(DagsterUnreachable, match=r"http://dagster.test:3000 .*make dev"):
        client.version()
    assert not client.is_up()


def test_something_else_on_the_port_is_told_from_dagster(dagster: FakeDagster, client: DagsterClient) -> None:
    dagster.broken = 404
    with pytest.raises(DagsterError, match="does not answer as Dagster does"):
        client.version()
    dagster.broken = 502
    with pytest.raises(DagsterUnreachable, match="502"):
        client.version()


def test_credentials_in_the_address_are_not_printed() -> None:
    with DagsterClient("http://me:secret@127.0.0.1:1", "x", timeout=1) as client:
        with pytest.raises(DagsterUnreachable) as caught:
            client.version()
        assert "secret" not in str(caught.value)
        assert "secret" not in client.run_url("r")


def test_ready_needs_location_and_a_daemon_heard_of_lately(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    assert client.not_ready() is None
    assert client.not_ready(heartbeat_since=101.0) == "these daemons are not running: QUEUED_RUN_COORDINATOR"
    dagster.daemon_alive = False
    assert client.not_ready() == "these daemons are not running: QUEUED_RUN_COORDINATOR"
    with DagsterClient("http://x", "elsewhere", transport=dagster.transport) as other:
        assert "no code location named 'elsewhere'" in (other.not_ready() or "")


def test_waiting_ends_when_all_is_there(dagster: FakeDagster, client: DagsterClient) -> None:
    dagster.daemon_alive = False

    def come_alive(name: str) -> None:
        dagster.daemon_alive |= name == "Daemons" and dagster.asked.count("Daemons") == 2

    dagster.on_ask = come_alive
    client.wait_until_ready(time.monotonic() + 30)
    assert dagster.asked.count("Daemons") == 2


def test_waiting_past_the_deadline_says_what_is_missing(dagster: FakeDagster, client: DagsterClient) -> None:
    dagster.daemon_alive = False
    with pytest.raises(DagsterUnreachable, match="QUEUED_RUN_COORDINATOR"):
        client.wait_until_ready(time.monotonic())


def test_waiting_for_a_location_that_cannot_load_ends_at_once(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    dagster.location_error = "ImportError: no module"
    with pytest.raises(DagsterError, match="no module"):
        client.wait_until_ready(time.monotonic() + 300)


def test_failures_are_the_innermost_errors_of_the_steps(dagster: FakeDagster, client: DagsterClient) -> None:
    wrapped = {
        "className": "DagsterExecutionStepExecutionError",
        "message": "dagster._core.errors.DagsterExecutionStepExecutionError: Error in op",
        "causes": [
            {
                "className": "StorageError",
                "message": "batch_pipelines.storage.errors.StorageError: disk full\n",
            }
        ],
    }
    deliberate = {
        "className": "Failure",
        "message": "dagster._core.definitions.events.Failure: the request is invalid: /a: no",
        "causes": [
            {"className": "RequestInvalid", "message": "batch_pipelines.api.errors.RequestInvalid: [..]"}
        ],
    }
    run = dagster.add_run("a", status="FAILURE")
    run.events = [
        {"__typename": "RunStartEvent"},
        {
            "__typename": "ExecutionStepFailureEvent",
            "stepKey": f"{ASSET}.run_inference[replica_00]",
            "error": wrapped,
        },
        {"__typename": "ExecutionStepFailureEvent", "stepKey": f"{ASSET}.merge_outputs", "error": deliberate},
        {"__typename": "RunFailureEvent", "message": "Steps failed", "error": None},
    ]
    assert client.failures(run.run_id) == [
        "run_inference[replica_00]: disk full",
        "merge_outputs: the request is invalid: /a: no",
    ]


def test_without_a_failed_step_the_runs_own_message_is_the_reason(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    run = dagster.add_run("a", status="FAILURE")
    run.events = [
        {"__typename": "RunFailureEvent", "message": "Exceeded maximum runtime of 60 seconds.", "error": None}
    ]
    assert client.failures(run.run_id) == ["Exceeded maximum runtime of 60 seconds."]


def test_a_run_that_could_not_load_its_definitions_says_so(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    error = {"className": "SerializableErrorInfo", "message": "ImportError: no module", "causes": []}
    run = dagster.add_run("a", status="FAILURE")
    run.events = [
        {"__typename": "EngineEvent", "error": None},
        {"__typename": "EngineEvent", "error": error},
        {"__typename": "RunFailureEvent", "message": "marked as failed from outside", "error": None},
    ]
    assert client.failures(run.run_id) == ["ImportError: no module", "marked as failed from outside"]


def test_terminating_a_queued_run_ends_it_and_a_running_one_only_asks(
    dagster: FakeDagster, client: DagsterClient
) -> None:
    queued, running, lost = (
        dagster.add_run("a", status=status) for status in ("QUEUED", "STARTED", "STARTED")
    )
    client.terminate(queued.run_id)
    client.terminate(running.run_id)
    client.terminate(lost.run_id, at_once=True)
    assert (queued.status, running.status, lost.status) == ("CANCELED", "CANCELING", "CANCELED")
    with pytest.raises(DagsterError, match="has ended"):
        client.terminate(queued.run_id)
