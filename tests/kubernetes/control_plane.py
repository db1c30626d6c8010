"""Dagster's webserver, daemon and code server, outside the cluster, as child processes of a test.

What they are configured with is in `tests.kubernetes.deployment`; runs and steps are the cluster's.
"""

from __future__ import annotations

import socket
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path

import orjson

from batch_pipelines.cli.child import Child
from batch_pipelines.control.dagster_client import DagsterClient

__all__ = ["ControlPlane", "free_port"]

_HOST = "127.0.0.1"
_READY_SEC = 180.0
_LOOK_SEC = 0.1


class ControlPlane:
    """Three processes, stopped by `stop`; a code server says which image has the code, as in real ones."""

    def __init__(self, home: Path, environment: Mapping[str, str], url: str, location: str) -> None:
        """See the class.

        Args:
            home: DAGSTER_HOME, with its dagster.yaml.
            environment: The processes' whole environment.
            url: Address the webserver is to have.
            location: Name of the code location.
        """
        self.url = url
        self._home = home
        self._environment = dict(environment)
        self._location = location
        self._workspace = home / "workspace.yaml"
        self._children: dict[str, Child] = {}

    def start(self, client: DagsterClient) -> None:
        """Start all three and wait until jobs can be launched.

        Raises:
            ChildEnded: One of them ended; the message has the end of its log.
            DagsterUnreachable: They do not get ready in time.
            DagsterError: The code does not load.
        """
        port = free_port()
        server = {"host": _HOST, "port": port, "location_name": self._location}
        self._workspace.write_bytes(orjson.dumps({"load_from": [{"grpc_server": server}]}))  # JSON is YAML
        code = ["-m", "batch_pipelines.definitions", "-h", _HOST, "-p", str(port)]
        self._run("code server", ["dagster", "api", "grpc", *code, "--location-name", self._location])
        self._wait_for_port(port)
        since = time.time()
        web_port = self.url.rpartition(":")[2]
        self._run("webserver", ["dagster-webserver", "-w", str(self._workspace), "-h", _HOST, "-p", web_port])
        deadline = time.monotonic() + _READY_SEC
        while not client.is_up() and time.monotonic() < deadline:  # it makes the tables, alone
            self.check()
            time.sleep(_LOOK_SEC)
        self._start_daemon()
        client.wait_until_ready(deadline, heartbeat_since=since, check=self.check)

    def restart_daemon(self, client: DagsterClient) -> None:
        """Stop the daemon, start another and wait until it works."""
        self.stop_daemon()
        since = time.time()
        self._start_daemon()
        client.wait_until_ready(time.monotonic() + _READY_SEC, heartbeat_since=since, check=self.check)

    def stop_daemon(self) -> None:
        """Stop the daemon; nobody launches, retries or watches runs from then on."""
        self._children.pop("daemon").end()

    def check(self) -> None:
        """Make sure that all run.

        Raises:
            ChildEnded: One does not.
        """
        for child in self._children.values():
            child.check()

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {name}\n{child.tail()}" for name, child in self._children.items())

    def stop(self) -> None:
        """Stop what was started, and wait until it is gone."""
        for child in self._children.values():
            child.ask_to_end()
        for child in self._children.values():
            child.end()
        self._children.clear()

    def _start_daemon(self) -> None:
        self._run("daemon", ["dagster-daemon", "run", "-w", str(self._workspace)])

    def _run(self, name: str, command: list[str]) -> None:
        program = Path(sysconfig.get_path("scripts"), command[0])
        log = self._home.parent / f"{name.replace(' ', '-')}.log"
        self._children[name] = Child(
            name, [str(program), *command[1:]], environment=self._environment, log=log
        )

    def _wait_for_port(self, port: int) -> None:
        deadline = time.monotonic() + _READY_SEC
        while True:
            self.check()
            try:
                socket.create_connection((_HOST, port), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_SEC)
            else:
                return


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
