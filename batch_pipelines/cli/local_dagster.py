"""A Dagster on this machine: webserver and daemon, started, watched and stopped.

It never touches a Dagster that it did not start.
"""

import fcntl
import os
import signal
import socket
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import httpx

from batch_pipelines.cli.child import Child, ChildEnded
from batch_pipelines.cli.dagster_home import local_environment, prepare_home, workspace_file
from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.errors import DagsterError
from batch_pipelines.settings import Settings

__all__ = ["LocalDagster", "choose_url", "ended_by_sigterm"]

_HOST = "127.0.0.1"
_READY_SEC = 180.0
_LOCAL_NAMES = ("127.0.0.1", "localhost")


class LocalDagster:
    """A webserver and a daemon; leaving the context stops both.

    Attributes:
        url: Address of the webserver.
        log_dir: Folder of their logs.
    """

    def __init__(self, settings: Settings, url: str, *, outlives: bool = False) -> None:
        """See the class.

        Args:
            settings: Of the deployment.
            url: From `choose_url`.
            outlives: Whether they should be able to go on when this process ends: see `leave_running`.
        """
        self.url = url
        self.log_dir = settings.home.absolute() / "logs"
        self._settings = settings
        self._outlives = outlives
        self._children: list[Child] = []
        self._lock: int | None = None
        self._left_running = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._left_running:
            self.stop()

    @property
    def pids(self) -> list[int]:
        """Process ids of what was started."""
        return [child.pid for child in self._children]

    def start(self, client: DagsterClient, note: Callable[[str], None]) -> None:
        """Start both and wait until jobs can be launched.

        Args:
            client: Of this Dagster.
            note: Told what happens, a sentence each.

        Raises:
            ChildEnded: One of them ended; the message has the end of its log.
            DagsterUnreachable: They do not get ready in time.
            DagsterError: The code location does not load, or this home is in use.
        """
        home = prepare_home(self._settings)
        is_first = not (home / "history").exists()
        self._lock = _lock(home)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        workspace = ["-w", str(workspace_file(self._settings, home))]
        since = time.time()
        port = str(httpx.URL(self.url).port)
        self._run(home, "webserver", ["dagster-webserver", *workspace, "-h", _HOST, "-p", port])
        if is_first:
            self._wait_for_webserver(client)  # two processes must not create the databases at the same time
        self._run(home, "daemon", ["dagster-daemon", "run", *workspace])
        client.wait_until_ready(time.monotonic() + _READY_SEC, heartbeat_since=since, check=self.check)
        for run in client.list_runs(statuses=["STARTED"]):
            if run.started_at is not None and run.started_at.timestamp() < since:
                # Its process was killed with the Dagster before this one, and nobody else would notice.
                client.terminate(run.run_id, at_once=True)
                note(f"job {run.job_id} was left behind by a killed Dagster; its run is cancelled now")

    def check(self) -> None:
        """Make sure that both run.

        Raises:
            ChildEnded: One does not.
        """
        for child in self._children:
            child.check()

    def leave_running(self) -> None:
        """Let both go on when this process ends."""
        self._left_running = True
        for child in self._children:
            child.release()

    def stop(self) -> None:
        """Stop what was started, and wait until it is gone."""
        with _deaf():
            for child in self._children:
                child.ask_to_end()
            for child in self._children:
                child.end()
            self._children.clear()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _run(self, home: Path, name: str, command: list[str]) -> None:
        program = Path(sysconfig.get_path("scripts"), command[0])
        child = Child(
            name,
            [str(program), *command[1:]],
            environment=local_environment(self._settings, home, self.url),
            log=self.log_dir / f"{name}.log",
            outlives=self._outlives,
            keep_open=[self._lock] if self._lock is not None else [],
        )
        self._children.append(child)

    def _wait_for_webserver(self, client: DagsterClient) -> None:
        deadline = time.monotonic() + _READY_SEC
        while not client.is_up():
            self.check()
            if time.monotonic() > deadline:
                raise ChildEnded(f"the webserver does not answer; see {self.log_dir}")
            time.sleep(0.2)


def choose_url(settings: Settings, *, any_port: bool) -> str:
    """Address for a local webserver: the settings' own, or on another port if that one is taken.

    Args:
        settings: Of the deployment.
        any_port: Whether another port will do.

    Raises:
        DagsterError: The settings name another machine, or their port is taken and no other will do.
    """
    url = httpx.URL(settings.dagster_url)
    if url.scheme != "http" or url.host not in _LOCAL_NAMES:
        raise DagsterError(f"{settings.dagster_url} is not on this machine: no Dagster can be started there")
    port = url.port or 80
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            if not any_port:
                raise DagsterError(
                    f"cannot listen on port {port}: {error.strerror}; "
                    "set BATCH_PIPELINES_DAGSTER_URL to http://127.0.0.1:PORT with a free one"
                ) from error
        else:
            return f"http://{_HOST}:{port}"
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return f"http://{_HOST}:{probe.getsockname()[1]}"


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack as an interrupt does, so that everything started is stopped."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore further requests to end, while ending."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lock(home: Path) -> int:
    """Take DAGSTER_HOME for one Dagster: two daemons on one database would launch each run twice."""
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DagsterError(
            f"a Dagster on {home} is running already, or is just stopping; "
            "BATCH_PIPELINES_DAGSTER_URL or --url would name its address"
        ) from error
    return descriptor
