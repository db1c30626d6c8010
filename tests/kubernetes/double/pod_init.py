"""First process of a container: starts its command, ends all of it. Standard library only; run with -I -S.

It stands for the process namespace of a real container: whatever the command starts, in sessions of its own
too, ends with it. Usage: pod_init.py STATUS_FD DIRECTORY COMMAND...

Orders come as lines on standard input: `stop SECONDS` (SIGTERM, then SIGKILL after the grace), `kill`. Its
end, when the test's process is gone, is `kill`. What happens is told as lines on STATUS_FD: `started PID`,
`failed MESSAGE`, `exited CODE` (128 + N after signal N), the last one when nothing is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _catches_sigterm(pid: int) -> bool:
    # As process 1 of its namespace, a command with no handler of its own never gets SIGTERM.
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & (1 << (signal.SIGTERM - 1)))
    return False


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found + [deeper for child in found for deeper in _descendants(child)]


class _Container:
    def __init__(self, status: int) -> None:
        self._status = status
        self._main = 0
        self._code: int | None = None
        self._kill_at: float | None = None
        self._orders = b""

    def run(self, directory: str, command: list[str]) -> None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN: the command would inherit that.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                cwd=directory,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            self._tell(f"failed {error.strerror}: {error.filename}")
            return
        self._main = process.pid
        self._tell(f"started {process.pid}")
        self._wait(wake)
        self._clean_up()
        self._tell(f"exited {self._code}")

    def _wait(self, wake: int) -> None:
        listen = [0, wake]
        while self._code is None:
            within = None if self._kill_at is None else max(self._kill_at - time.monotonic(), 0)
            ready, _, _ = select.select(listen, [], [], within)
            if wake in ready:
                os.read(wake, 4096)
            if 0 in ready:
                self._take_orders(listen)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._main, signal.SIGKILL)
                self._kill_at = time.monotonic() + 0.05
            self._reap()

    def _take_orders(self, listen: list[int]) -> None:
        got = os.read(0, 4096)
        if not got:
            listen.remove(0)
            got = b"kill\n"
        *lines, self._orders = (self._orders + got).split(b"\n")
        for line in lines:
            order, _, seconds = line.partition(b" ")
            grace = float(seconds) if order == b"stop" else 0.0
            if order == b"stop" and grace > 0 and _catches_sigterm(self._main):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._main, signal.SIGTERM)
            latest = time.monotonic() + grace
            self._kill_at = latest if self._kill_at is None else min(latest, self._kill_at)

    def _reap(self) -> bool:
        """Collect what has ended; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                code = os.waitstatus_to_exitcode(status)
                self._code = 128 - code if code < 0 else code

    def _clean_up(self) -> None:
        # What is orphaned becomes a child of this process, so in the end none can hide.
        while self._reap():
            for pid in _descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._status, line.encode() + b"\n")


if __name__ == "__main__":
    _Container(int(sys.argv[1])).run(sys.argv[2], sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)
