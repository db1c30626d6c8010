"""`batch-pipelines demo` as a newcomer runs it, but for the engine: it starts Dagster, and stops it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batch_pipelines.cli.local_dagster import choose_url
from batch_pipelines.settings import Settings
from tests.support.processes import wait_until

PROJECT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from batch_pipelines.cli.main import cli; cli()", "demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A folder with the examples, and the variables of a deployment in it."""
    shutil.copytree(PROJECT / "examples", tmp_path / "examples")
    home = tmp_path / ".batch-pipelines"
    return {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "BATCH_PIPELINES_HOME": str(home),
        "BATCH_PIPELINES_ENGINE": "fake",
        "BATCH_PIPELINES_DAGSTER_URL": choose_url(Settings(home=home), any_port=True),
    }


def processes_of(home: str) -> Iterator[psutil.Process]:
    """Every process that belongs to the Dagster of a home."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("DAGSTER_HOME") == f"{home}/dagster":
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def test_demo_shows_answers_and_the_broken_item_and_leaves_no_process(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = subprocess.run(
        COMMAND, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    output = tmp_path / ".batch-pipelines" / "outputs" / "chats.json"
    for part in (
        "39 of 40 items answered",
        "[2] In one sentence: what do plants use sunlight for?",
        "[19] failed (line 20 of the input): BadRequestError, 400",
        f"output  {output}\n",
        f"run     {environment['BATCH_PIPELINES_DAGSTER_URL']}/runs/",
    ):
        assert part in result.stdout
    records = json.loads(output.read_bytes())
    chats = [json.loads(line) for line in (tmp_path / "examples" / "chats.jsonl").read_bytes().splitlines()]
    assert [record["custom_id"] for record in records] == [chat["custom_id"] for chat in chats]
    assert list(processes_of(environment["BATCH_PIPELINES_HOME"])) == []


def test_a_demo_that_is_ended_cancels_its_job_and_leaves_no_process(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["BATCH_PIPELINES_FAKE_DELAY_SEC"] = "60"
    log = tmp_path / "demo.log"
    with log.open("wb") as sink:
        demo = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment, stdout=sink, stderr=sink)
    wait_until(lambda: demo.poll() is not None or "starting the engine" in log.read_text(), within_sec=200)
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(timeout=60) == 143, log.read_text()
    assert log.read_text().splitlines()[-1].startswith("cancelled")
    assert list(processes_of(environment["BATCH_PIPELINES_HOME"])) == []
