"""A container's processes and its log file. What the pod's status says about them is not known here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.kubernetes.double.clock import now_precise

__all__ = ["ContainerProcess", "StartError"]

_INIT = str(Path(__file__).with_name("pod_init.py"))
_LINE_BYTES = 64 * 1024


class StartError(Exception):
    """The command cannot be started."""


class ContainerProcess:
    """A command that runs in a container's place."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], directory: Path, log: Path
    ) -> None:
        """Start a command.

        Args:
            command: Program and arguments.
            environment: All of its environment.
            directory: Its working directory.
            log: File that gets what it prints, each line with its time in front; appended to.

        Raises:
            StartError: There is no such program, or it may not be run.
        """
        status, telling = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _INIT, str(telling), str(directory), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=[telling],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(status)
            raise StartError(str(error)) from error
        finally:
            os.close(telling)
        self._orders = threading.Lock()
        self._log = threading.Thread(target=self._keep_log, args=(log,), name="container log", daemon=True)
        self._log.start()
        self._status: IO[str] = os.fdopen(status)
        word, _, rest = self._status.readline().strip().partition(" ")
        if word != "started":
            self._collect()
            raise StartError(rest or "the container ended before its command was started")
        self.pid = int(rest)
        """Process id of the command itself."""

    def wait(self) -> int:
        """Wait until all of it is gone and its log complete; return the exit code, 128 + N after signal N."""
        word, _, rest = self._status.readline().strip().partition(" ")
        self._collect()
        # Without a word: the first process itself was killed, as if the machine had done it.
        return int(rest) if word == "exited" else 137

    def stop(self, grace_sec: float) -> None:
        """Have it end: SIGTERM to the command, SIGKILL to all after the grace. Does not wait."""
        self._order(f"stop {grace_sec}\n")

    def kill(self) -> None:
        """SIGKILL to all of it. Does not wait."""
        self._order("kill\n")

    def _order(self, order: str) -> None:
        with self._orders, contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(order.encode())
            self._process.stdin.flush()

    def _collect(self) -> None:
        self._process.wait()
        self._log.join()
        self._status.close()
        with self._orders, contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _keep_log(self, path: Path) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output, path.open("ab") as file:
            while line := output.readline(_LINE_BYTES):
                ended = line if line.endswith(b"\n") else line + b"\n"
                file.write(now_precise().encode() + b" " + ended)
                file.flush()
