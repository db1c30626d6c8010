"""Starting Dagster on this machine: its home, its environment, its processes."""

import os
import signal
import socket
import sys
from pathlib import Path

import dagster as dg
import orjson
import pytest

from batch_pipelines.cli import dagster_home
from batch_pipelines.cli.child import Child, ChildEnded
from batch_pipelines.cli.dagster_home import local_environment, prepare_home, workspace_file
from batch_pipelines.cli.local_dagster import LocalDagster, choose_url, ended_by_sigterm
from batch_pipelines.control.errors import DagsterError
from batch_pipelines.settings import Settings
from tests.support.fake_dagster import FakeDagster
from tests.support.processes import gone, wait_until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
PARENT = (
    "import subprocess, sys, time; "
    "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True); "
    "time.sleep(600)"
)


def test_the_home_has_a_configuration_that_dagster_accepts(settings: Settings) -> None:
    home = prepare_home(settings)
    (home / "dagster.yaml").write_text((home / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_resume_run_attempts == 0
        assert instance.run_retries_enabled
        assert instance.run_retries_max_retries == 0
        assert not instance.telemetry_enabled
        config = instance.get_concurrency_config()
        assert config.run_queue_config is not None
        assert config.run_queue_config.max_concurrent_runs == 2


def test_a_dagster_home_of_the_users_own_is_left_alone(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(own))
    home = prepare_home(settings)
    assert local_environment(settings, home, "http://x")["DAGSTER_HOME"] == str(home)
    assert list(own.iterdir()) == []


def test_the_workspace_is_the_checkouts_or_one_for_the_installed_package(
    settings: Settings, tmp_path: Path
) -> None:
    home = prepare_home(settings)
    assert workspace_file(settings, home).read_text().splitlines() == [
        "load_from:",
        "  - python_module:",
        "      module_name: batch_pipelines.definitions",
        "      location_name: batch_pipelines",
    ]
    (tmp_path / "workspace.yaml").write_text("load_from: []")
    assert workspace_file(settings, home) == tmp_path / "workspace.yaml"


def test_cpu_defaults_are_set_only_where_nothing_is(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dagster_home, "_GPU_DEVICES", ())
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    environment = local_environment(settings, Path("/h"), "http://x")
    assert orjson.loads(environment["BATCH_PIPELINES_ENGINE_ARGS"])["enforce_eager"] is True
    assert orjson.loads(environment["BATCH_PIPELINES_ENGINE_ENV"])["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert environment["BATCH_PIPELINES_DAGSTER_URL"] == "http://x"
    monkeypatch.setenv("BATCH_PIPELINES_ENGINE_ARGS", "{}")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "8")
    environment = local_environment(settings, Path("/h"), "http://x")
    assert environment["BATCH_PIPELINES_ENGINE_ARGS"] == "{}"
    assert "VLLM_CPU_KVCACHE_SPACE" not in orjson.loads(environment["BATCH_PIPELINES_ENGINE_ENV"])


def test_a_gpu_needs_no_cpu_defaults(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dagster_home, "_GPU_DEVICES", ("null",))
    assert "BATCH_PIPELINES_ENGINE_ARGS" not in local_environment(settings, Path("/h"), "http://x")


def child(tmp_path: Path, code: str, *, outlives: bool = False) -> Child:
    log = tmp_path / "child.log"
    return Child("child", [sys.executable, "-c", code], environment=os.environ, log=log, outlives=outlives)


@pytest.mark.parametrize("outlives", [False, True])
def test_ending_a_child_ends_what_it_started(tmp_path: Path, outlives: bool) -> None:
    started = child(tmp_path, PARENT, outlives=outlives)
    wait_until(lambda: started.tail().strip().isdigit())
    grandchild = int(started.tail())
    started.check()
    started.end()
    assert gone(grandchild)
    with pytest.raises(ChildEnded):
        started.check()


def test_a_child_that_ended_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    started = child(tmp_path, "raise SystemExit('the port is taken')")

    def has_ended() -> bool:
        try:
            started.check()
        except ChildEnded:
            return True
        return False

    wait_until(has_ended)
    with pytest.raises(ChildEnded, match="the port is taken"):
        started.check()
    started.end()


def test_sigterm_unwinds_like_an_exit() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_taken_port_is_refused_or_replaced(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        busy = settings.model_copy(update={"dagster_url": f"http://127.0.0.1:{port}"})
        with pytest.raises(DagsterError, match=f"port {port}"):
            choose_url(busy, any_port=False)
        assert choose_url(busy, any_port=True) != busy.dagster_url
    assert choose_url(busy, any_port=False) == busy.dagster_url


def test_dagster_is_not_started_for_an_address_elsewhere(settings: Settings) -> None:
    remote = settings.model_copy(update={"dagster_url": "https://dagster.example.org"})
    with pytest.raises(DagsterError, match="not on this machine"):
        choose_url(remote, any_port=True)


def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str = SLEEP) -> None:
    """Put stand-ins where Dagster's programs are looked for."""
    for name in ("dagster-webserver", "dagster-daemon"):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))


def test_both_processes_run_until_the_context_is_left(
    settings: Settings, dagster: FakeDagster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch)
    monkeypatch.setattr("time.time", lambda: 50.0)  # before the fake daemon's last sign of life
    left = dagster.add_run("lost", status="STARTED", started=10.0)
    new = dagster.add_run("new", status="STARTED", started=60.0)
    notes: list[str] = []
    with LocalDagster(settings, "http://127.0.0.1:9", outlives=False) as local:
        local.start(dagster.client(), notes.append)
        pids = local.pids
        assert len(pids) == 2
        local.check()
    assert all(gone(pid) for pid in pids)
    assert (left.status, new.status) == ("CANCELED", "STARTED")
    assert "job lost" in notes[0]


def test_a_second_dagster_on_the_same_home_is_refused(
    settings: Settings, dagster: FakeDagster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch)
    monkeypatch.setattr("time.time", lambda: 50.0)
    with LocalDagster(settings, "http://127.0.0.1:9") as first:
        first.start(dagster.client(), lambda _: None)
        with (
            LocalDagster(settings, "http://127.0.0.1:10") as second,
            pytest.raises(DagsterError, match="running"),
        ):
            second.start(dagster.client(), lambda _: None)
        first.check()
    with LocalDagster(settings, "http://127.0.0.1:10") as third:
        third.start(dagster.client(), lambda _: None)


def test_a_webserver_that_fails_is_told_with_its_log(
    settings: Settings, dagster: FakeDagster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, "raise SystemExit('no such option')")
    dagster.daemon_alive = False
    with (
        LocalDagster(settings, "http://127.0.0.1:9") as local,
        pytest.raises(ChildEnded, match="no such option"),
    ):
        local.start(dagster.client(), lambda _: None)
    assert local.pids == []
