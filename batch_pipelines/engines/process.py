"""One run of an engine's processes: starting them under the reaper, reading what they print, ending them.

Threads, not asyncio's subprocesses: those need a child watcher bound to the main thread, and a step's loop
may run in any. What the engine answers to, and over which protocol, is not known here.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_REAPER = str(Path(__file__).with_name("reaper.py"))
_LINE_BYTES = 64 * 1024  # a longer line is handed on in pieces
_TAIL_LINES = 400
_QUEUE_LINES = 10_000
_BEYOND_GRACE_SEC = 4.0


class EngineProcess:
    """A running engine command with everything it started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        log: Callable[[str], None],
        grace_sec: float = 10.0,
    ) -> None:
        """Start the command.

        Args:
            command: Program and arguments; never seen by a shell.
            environment: The whole environment of the command.
            directory: Its working directory, made for it; removed when it has ended.
            log: Called with each line it prints, from a thread of its own: the engine does not wait for it.
            grace_sec: Seconds between the request to end and SIGKILL.

        Raises:
            OSError: The process cannot be started.
            ValueError: An argument cannot be passed on (it holds a NUL).
        """
        self._grace_sec = grace_sec
        self._log = log
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._lines: queue.Queue[str | None] = queue.Queue(maxsize=_QUEUE_LINES)
        self._dropped = 0
        self._ended = threading.Event()
        self._exit_code: int | None = None
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                _REAPER,
                "--grace",
                str(grace_sec),
                "--remove",
                str(directory),
                "--",
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
        )
        self._stdin, self._stdout = _pipes(self._process)
        self._reader = self._thread(self._read, "reader")
        self._logger = self._thread(self._hand_on, "log")
        self._thread(self._watch, "watch")

    @property
    def pid(self) -> int:
        """The reaper's process id, which is also the id of the group and of the session."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether all of it is gone."""
        return self._ended.is_set()

    @property
    def exit_code(self) -> int | None:
        """The engine's exit code (128 + N after signal N) once it has ended."""
        return self._exit_code

    @property
    def tail(self) -> list[str]:
        """The last lines it printed, oldest first."""
        return list(self._tail)

    def stop(self) -> None:
        """End it and wait until it is gone; blocks up to the grace and some seconds."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        if not self._ended.wait(self._grace_sec + _BEYOND_GRACE_SEC):
            self._kill_group()
            self._ended.wait(_BEYOND_GRACE_SEC)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _watch(self) -> None:
        # The reaper stays a zombie until wait() below, so its id still names this group and no other.
        # Normally the group is empty by now; it is not when the reaper itself was killed.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._kill_group()
        code = self._process.wait()
        self._exit_code = code if code >= 0 else 128 - code
        self._reader.join(2.0)  # the last words matter most, and they are in the pipe already
        self._logger.join(2.0)
        self._ended.set()

    def _read(self) -> None:
        with self._stdout as stream:
            while data := stream.readline(_LINE_BYTES):
                # A progress bar redraws its line with \r; only its last state is worth a line.
                line = data.decode(errors="replace").rstrip().rsplit("\r", 1)[-1]
                if line:
                    self._tail.append(line)
                    self._enqueue(line)
        self._lines.put(None)

    def _enqueue(self, line: str) -> None:
        # An engine whose pipe is full stops working, so lines are dropped rather than waited with.
        try:
            if self._dropped:
                self._lines.put_nowait(f"({self._dropped} lines of the engine's log were dropped)")
                self._dropped = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _hand_on(self) -> None:
        while (line := self._lines.get()) is not None:
            # What a log does with a line is not the engine's concern; the next line may fare better.
            with contextlib.suppress(Exception):
                self._log(line)

    def _thread(self, target: Callable[[], None], role: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"engine-{role}-{self._process.pid}", daemon=True)
        thread.start()
        return thread


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process was started without pipes")
    return process.stdin, process.stdout
