"""The PostgreSQL that deployments are tested with: passwords count, databases are apart, nothing is left."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.support import postgres
from tests.support.postgres import PostgresMissing, PostgresServer, postgres_server

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


def test_dagster_keeps_its_runs_in_a_database_of_its_own(server: PostgresServer) -> None:
    database = server.new_database("runs-1")
    assert PostgresServer.at(database.url) == database

    @dg.job
    def nothing() -> None:
        pass

    storage = {"postgres": {"postgres_url": database.url}}
    with dg.instance_for_test(overrides={"storage": storage}) as instance:
        assert nothing.execute_in_process(instance=instance).success
    with database.engine().connect() as connection:
        rows = connection.execute(text("select pipeline_name, status from runs")).all()
        assert [tuple(row) for row in rows] == [("nothing", "SUCCESS")]
    with server.new_database("runs-2").engine().connect() as connection:
        assert connection.execute(text("select to_regclass('runs')")).scalar() is None


def test_wrong_password_is_refused(server: PostgresServer) -> None:
    with pytest.raises(OperationalError, match="password authentication failed"):
        replace(server, password="wrong").engine().connect()


def test_stopped_server_leaves_no_process_and_no_folder_though_a_client_stays(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    with postgres_server() as server:
        assert len(list(open_folder.iterdir())) == 1
        client = server.engine().connect()
    assert not list(open_folder.iterdir())
    with pytest.raises(OperationalError, match="refused"):
        server.engine().connect()
    client.close()


def test_machine_without_postgres_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PostgresMissing, match="install the package `postgresql`"), postgres_server():
        pass
