"""One function accepts a request and launches its run."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.parse import parse_request
from batch_pipelines.control.errors import DagsterError, DagsterUnreachable
from batch_pipelines.run_config import request_of
from batch_pipelines.settings import Settings
from batch_pipelines.submission import resolve_paths, submit
from tests.support.fake_dagster import FakeDagster

REQUEST: dict[str, Any] = {
    "input_data_path": "data/in.jsonl",
    "output_data_path": "out/answers.json",
    "labels": {"team": "a"},
    "max_runtime_sec": 60,
    "priority": "high",
    "model_config": {"model": "tiny"},
}


@pytest.fixture
def dagster() -> FakeDagster:
    return FakeDagster()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, max_run_retries=2)


def stored(settings: Settings) -> list[Path]:
    return sorted(settings.home.glob("jobs/*/request.json"))


def test_a_job_is_stored_registered_and_launched(dagster: FakeDagster, settings: Settings) -> None:
    job_id = submit(orjson.dumps(REQUEST), settings=settings, client=dagster.client())
    assert [path.parent.name for path in stored(settings)] == [job_id]
    assert dagster.partitions == {job_id}
    (run,) = dagster.runs
    assert request_of(run.config) == REQUEST
    assert orjson.loads(stored(settings)[0].read_bytes()) == REQUEST
    assert run.tags == {
        "dagster/partition": job_id,
        "dagster/max_retries": "2",
        "dagster/max_runtime": "180",
        "dagster/priority": "10",
        "batch/model": "tiny",
        "label/team": "a",
    }


def test_fresh_is_passed_on_as_a_tag(dagster: FakeDagster, settings: Settings) -> None:
    submit(REQUEST, settings=settings, client=dagster.client(), fresh=True)
    assert dagster.runs[0].tags["batch/fresh"] == "true"


def test_relative_paths_become_absolute_on_request(dagster: FakeDagster, settings: Settings) -> None:
    submit(REQUEST, settings=settings, client=dagster.client(), base_dir=Path("/here"))
    launched = request_of(dagster.runs[0].config)
    assert launched["input_data_path"] == "/here/data/in.jsonl"
    assert launched["output_data_path"] == "/here/out/answers.json"


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ("x.json", "/here/x.json"),
        ("./a/../x.json", "/here/x.json"),
        ("../x.json", "/x.json"),
        ("/abs/x.json", "/abs/x.json"),
        ("s3://b/x.json", "s3://b/x.json"),
        ("file:///x.json", "file:///x.json"),
        ("s3:typo/x.json", "s3:typo/x.json"),
        ("~/x.json", "~/x.json"),
        (" x.json", " x.json"),
    ],
)
def test_only_relative_local_paths_are_resolved(given: str, resolved: str) -> None:
    request = parse_request(
        {
            "content": [{"prompt": "hi"}],
            "output_data_path": given,
            "model_config": {"model": "m", "checkpoint_path": given},
        }
    )
    result = resolve_paths(request, Path("/here"))
    assert result.output_data_path == resolved
    assert result.engine_config.checkpoint_path == resolved
    assert result.input_data_path is None


def test_every_error_is_told_and_nothing_is_left(dagster: FakeDagster, settings: Settings) -> None:
    with pytest.raises(RequestInvalid) as caught:
        submit({"model_config": {}, "inputs": 1}, settings=settings, client=dagster.client())
    pointers = {error.pointer for error in caught.value.errors}
    assert pointers >= {"/model_config/model", "/output_data_path", "/inputs"}
    assert (dagster.asked, stored(settings)) == ([], [])


def test_without_dagster_nothing_is_written(dagster: FakeDagster, settings: Settings) -> None:
    dagster.down = True
    with pytest.raises(DagsterUnreachable):
        submit(REQUEST, settings=settings, client=dagster.client())
    assert stored(settings) == []


def test_a_refused_launch_leaves_no_phantom(dagster: FakeDagster, settings: Settings) -> None:
    dagster.launch_error = "the job does not exist"
    with pytest.raises(DagsterError, match="does not exist"):
        submit(REQUEST, settings=settings, client=dagster.client())
    assert dagster.partitions == set()
    assert stored(settings) == []


def test_a_launch_without_an_answer_names_the_job_it_may_have_started(
    dagster: FakeDagster, settings: Settings
) -> None:
    dagster.silent_at_launch = True
    with pytest.raises(DagsterUnreachable) as caught:
        submit(REQUEST, settings=settings, client=dagster.client())
    (job_id,) = dagster.partitions
    assert job_id in str(caught.value)
    assert len(stored(settings)) == 1
