"""Progress on a terminal and elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from batch_pipelines.cli.follow import Bar, Lines
from batch_pipelines.control.jobs import Jobs, JobView
from batch_pipelines.settings import Settings
from tests.support.fake_dagster import FakeDagster
from tests.support.job_records import JobRecords


@pytest.fixture
def records(dagster: FakeDagster, settings: Settings) -> JobRecords:
    records = JobRecords(settings, "j")
    records.accept()
    dagster.add_run("j", status="STARTED", steps={"run_inference[replica_00]": "IN_PROGRESS"})
    return records


def look(dagster: FakeDagster, settings: Settings) -> JobView:
    return Jobs(dagster.client(), settings).view("j")


def test_the_bar_shows_stage_items_failures_and_rate(
    dagster: FakeDagster, settings: Settings, records: JobRecords
) -> None:
    screen = io.StringIO()
    with Bar(Console(file=screen, force_terminal=True, width=160)) as bar:
        bar.show(look(dagster, settings))
        records.shard(10)
        records.report("inferring", done=4, failed=1, rate=80.0)
        bar.show(look(dagster, settings))
    first, last = screen.getvalue(), screen.getvalue().rsplit("inferring", 1)[1]
    assert "starting the engine" in first
    for part in ("4/10", "1 failed", "80 tok/s", "ETA"):
        assert part in last


def test_lines_are_printed_when_something_is_new(
    dagster: FakeDagster,
    settings: Settings,
    records: JobRecords,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines() as lines:
        lines.show(look(dagster, settings))
        lines.show(look(dagster, settings))
        records.shard(10)
        records.report("inferring", done=4, rate=80.0)
        lines.show(look(dagster, settings))
        records.publish(tmp_path / "out.json", total=10)
        dagster.runs[0].status = "SUCCESS"
        lines.show(look(dagster, settings))
    assert capsys.readouterr().err.splitlines() == [
        "starting the engine",
        "inferring  4/10 items  80 tok/s",
        "completed  10/10 items",
    ]
