"""The commands that print files and schemas."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from batch_pipelines.settings import Settings
from tests.support.fake_dagster import FakeDagster
from tests.support.job_records import JobRecords

Invoke = Callable[..., Result]

ARRAY = b'[\n{"a":1},\n{"a":"x,y"},\n{"error":{}}\n]\n'
ERRORS = b'{"index":2,"line":3,"error":{}}\n'


@pytest.fixture
def published(dagster: FakeDagster, settings: Settings, tmp_path: Path) -> JobRecords:
    records = JobRecords(settings, "j")
    records.accept()
    (tmp_path / "out.json").write_bytes(ARRAY)
    (tmp_path / "errors.jsonl").write_bytes(ERRORS)
    records.publish(tmp_path / "out.json", errors=tmp_path / "errors.jsonl")
    dagster.add_run("j", status="SUCCESS")
    return records


@pytest.mark.usefixtures("published")
def test_output_is_printed_byte_for_byte(invoke: Invoke) -> None:
    assert invoke("output", "j").stdout_bytes == ARRAY
    assert invoke("output", "j", "--errors").stdout_bytes == ERRORS


@pytest.mark.usefixtures("published")
def test_head_prints_records_a_line_each(invoke: Invoke) -> None:
    assert invoke("output", "j", "--head", "2").stdout_bytes == b'{"a":1}\n{"a":"x,y"}\n'
    assert invoke("output", "j", "--head", "9").stdout_bytes.count(b"\n") == 3
    assert invoke("output", "j", "--head", "0").stdout_bytes == b""


def test_no_errors_file_is_no_error(invoke: Invoke, published: JobRecords, tmp_path: Path) -> None:
    published.publish(tmp_path / "out.json")
    result = invoke("output", "j", "--errors")
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_running_job_has_no_output(invoke: Invoke, dagster: FakeDagster, settings: Settings) -> None:
    JobRecords(settings, "j").accept()
    dagster.add_run("j", status="STARTED")
    result = invoke("output", "j")
    assert result.exit_code == 1
    assert "it is running" in result.stderr


@pytest.mark.usefixtures("published")
def test_an_output_that_was_deleted_is_told(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "out.json").unlink()
    result = invoke("output", "j")
    assert result.exit_code == 1
    assert "out.json" in result.stderr


@pytest.mark.parametrize("name", ["request", "job", "item", "output", "model-config"])
def test_schemas_are_printed_without_any_dagster(invoke: Invoke, dagster: FakeDagster, name: str) -> None:
    assert json.loads(invoke("schema", name).stdout)["$schema"].startswith("https://json-schema.org/")
    assert dagster.asked == []


def test_help_documents_the_exit_codes(invoke: Invoke) -> None:
    text = invoke("--help").stdout
    for line in ("4    no Dagster answers", "130  interrupted"):
        assert line in text


def test_the_command_line_imports_none_of_the_heavy_packages() -> None:
    code = (
        "import sys, batch_pipelines.cli.main; "
        "print([name for name in ('dagster', 'torch', 'vllm', 'transformers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_store_is_the_deployments_wherever_the_command_is_started(
    invoke: Invoke,
    dagster: FakeDagster,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    published: JobRecords,
) -> None:
    del published
    dagster.store = settings.job_store
    monkeypatch.delenv("BATCH_PIPELINES_HOME")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert invoke("output", "j").stdout_bytes == ARRAY
    assert list(elsewhere.iterdir()) == []
