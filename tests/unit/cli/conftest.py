"""The command line, run in the test's process against a fake Dagster."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batch_pipelines.cli.app import App
from batch_pipelines.cli.main import cli
from batch_pipelines.settings import Settings
from tests.support.fake_dagster import FakeDagster

Invoke = Callable[..., Result]


@pytest.fixture
def dagster() -> FakeDagster:
    return FakeDagster()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("BATCH_PIPELINES_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Settings()


@pytest.fixture
def invoke(dagster: FakeDagster, settings: Settings) -> Invoke:
    del settings  # set up in the environment

    def run(*args: str, stdin: str | None = None) -> Result:
        app = App(poll_sec=0.0, transport=dagster.transport)
        result = CliRunner().invoke(cli, args, obj=app, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
