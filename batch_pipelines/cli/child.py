"""A process that ends with the command that started it, however that ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from batch_pipelines.engines import reaper

__all__ = ["Child", "ChildEnded"]

_GRACE_SEC = 15.0
_BEYOND_GRACE_SEC = 8.0
_LOOK_SEC = 0.05
_TAIL_LINES = 25
_TAIL_BYTES = 16 * 1024


class ChildEnded(Exception):
    """A process that should run has ended. The message has the end of its log."""


class Child:
    """A program with everything it starts, its output going to a file.

    Attributes:
        name: What it is, for messages.
        log: Where its output goes.
        pid: The program's id if it outlives this process, else its supervisor's.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        outlives: bool = False,
        keep_open: Sequence[int] = (),
    ) -> None:
        """Start it.

        Args:
            name: What it is.
            command: Program and arguments.
            environment: Its whole environment.
            log: File for its output, replaced.
            outlives: Whether it goes on when this process ends. If not, a supervisor ends it, even
                when this process is killed.
            keep_open: File descriptors it inherits.
        """
        self.name = name
        self.log = log
        self._outlives = outlives
        supervisor = [sys.executable, "-I", "-S", str(reaper.__file__), "--grace", str(_GRACE_SEC), "--"]
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                command if outlives else [*supervisor, *command],
                stdin=subprocess.DEVNULL if outlives else subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=keep_open,
                start_new_session=True,  # an interrupt from the terminal is this process's to handle
            )
        self.pid = self._process.pid

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            ChildEnded: It does not.
        """
        code = self._process.poll()
        if code is not None:
            raise ChildEnded(
                f"the {self.name} ended with exit code {code}; the end of {self.log}:\n{self.tail()}"
            )

    def tail(self) -> str:
        """The last lines of its output."""
        with self.log.open("rb") as lines:
            lines.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            return "\n".join(lines.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def ask_to_end(self) -> None:
        """Let it begin to end; returns at once."""
        if self._process.stdin is not None:
            self._process.stdin.close()  # which its supervisor waits for
        else:
            self._signal_group(signal.SIGTERM)

    def end(self) -> None:
        """End it, with everything it started, and wait until it is gone."""
        self.ask_to_end()
        patience = time.monotonic() + _GRACE_SEC + _BEYOND_GRACE_SEC
        while self._process.poll() is None or (self._outlives and _group_lives(self.pid)):
            if time.monotonic() > patience:
                self._signal_group(signal.SIGKILL)
            time.sleep(_LOOK_SEC)

    def release(self) -> None:
        """Let go of a process that outlives this one."""
        self._process.returncode = 0  # it is nobody's to wait for; Popen would warn at exit

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _group_lives(group: int) -> bool:
    """Whether a process group has a member that runs; one that only waits to be collected does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name stands in brackets and may hold anything, so fields are counted after the last bracket.
            state, _, pgrp = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(pgrp) == group and state not in "ZX":
            return True
    return False
