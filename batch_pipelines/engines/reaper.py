"""A tiny supervisor that sees to it that no process of an engine outlives the process that asked for it.

It is started with a pipe as its standard input and in a session of its own, starts the engine's command, and
waits for one of two things: the pipe closes (the parent asked for an end, or died, also by SIGKILL), or the
engine's main process exits. Either way it ends every process that came of the command: SIGTERM, a grace, then
SIGKILL.

    python reaper.py [--grace SECONDS] [--remove FOLDER] -- COMMAND...

Only the standard library is imported, and it runs by its path, so it costs a few megabytes and no start-up
time. Linux.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SEC = 0.05
_UNKILLABLE_SEC = 5.0  # a process stuck in a driver call cannot be ended; the reaper must not hang with it


def main(argv: list[str]) -> int:
    """Run the command under supervision; returns its exit code, or 128 + N when signal N ended it."""
    grace, folder, command = _parse(argv)
    parent = os.getppid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the engine come to us, whatever session they moved to
    asked: list[int] = []
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(wakeup_end, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: asked.append(got))
    signal.signal(signal.SIGCHLD, lambda _got, _frame: None)
    try:
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_reaper)
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", file=sys.stderr, flush=True)
        return 127

    code = _reap(engine.pid)
    # The pipe alone is not enough: a sibling forked by the parent may hold its other end. So look at the
    # parent too.
    while code is None and not asked and os.getppid() == parent:
        readable, _, _ = select.select([0, wakeup], [], [], 1.0)
        if 0 in readable and not os.read(0, 4096):
            break
        if wakeup in readable:
            os.read(wakeup, 4096)
        code = _reap(engine.pid)

    ended = _end_all(engine.pid, grace)
    code = ended if code is None else code
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    engine.returncode = code  # collected by _reap; Popen must not look for it again
    if code is None:
        return 1
    return code if code >= 0 else 128 - code


def _parse(argv: list[str]) -> tuple[float, str | None, list[str]]:
    mark = argv.index("--") if "--" in argv else len(argv)
    options, command = dict(zip(argv[:mark:2], argv[1:mark:2], strict=False)), argv[mark + 1 :]
    if not command or mark % 2 or not options.keys() <= {"--grace", "--remove"}:
        raise SystemExit("usage: reaper.py [--grace SECONDS] [--remove FOLDER] -- COMMAND...")
    return float(options.get("--grace", "10")), options.get("--remove"), command


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with_reaper() -> None:
    """Run just before the command: a killed reaper makes the kernel end the engine's main process."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _reap(engine: int) -> int | None:
    """Collect every ended child, adopted ones too; returns the engine's exit code when it was among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == engine:
            code = os.waitstatus_to_exitcode(status)


def _end_all(engine: int, grace: float) -> int | None:
    """End everything that came of the command; returns the engine's exit code if it was still running."""
    code = None
    ask_all_at = time.monotonic() + grace / 2
    kill_at = time.monotonic() + grace
    asked: set[int] = set()
    while members := _members():
        now = time.monotonic()
        if now > kill_at + _UNKILLABLE_SEC:
            print(f"processes {sorted(members)} do not end on SIGKILL", file=sys.stderr, flush=True)
            break
        if now >= kill_at:
            _signal(members, signal.SIGKILL)
        else:
            # The main process ends its own helpers best; asked all at once it logs their exit as a crash. And
            # each is asked once: a second SIGTERM cuts short the cleaning up that the first one began.
            now_asked = {engine} if engine in members and now < ask_all_at else members
            _signal(now_asked - asked, signal.SIGTERM)
            asked |= now_asked
        time.sleep(_LOOK_SEC)
        reaped = _reap(engine)
        code = reaped if reaped is not None else code
    return code


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it ended since we looked
        except PermissionError as error:
            print(f"cannot signal process {pid}: {error}", file=sys.stderr, flush=True)


def _members() -> set[int]:
    """Return the living descendants of this process, and the other members of its group if it leads one."""
    me = os.getpid()
    group = me if os.getpgrp() == me else None
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name stands in brackets and may hold anything, so fields are counted after the last bracket.
            state, parent, pgrp = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        pid = int(entry.name)
        if pid == me or state in "ZX":
            continue
        parents[pid] = int(parent)
        if int(pgrp) == group:
            found.add(pid)
    for pid in parents:
        above = pid
        while above in parents and above != me:
            above = parents[above]
        if above == me:
            found.add(pid)
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
