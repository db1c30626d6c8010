"""The reaper: nothing of an engine outlives the one who asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch_pipelines.engines import reaper
from tests.support.processes import gone, pids_in, wait_until

REAPER = reaper.__file__
WRITE_PID = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
SLEEP = WRITE_PID + "time.sleep(600)\n"
# An engine with a child and a grandchild; the grandchild has left the group and the session.
FAMILY = (
    WRITE_PID
    + "import subprocess\n"
    + "if len(sys.argv) > 2:\n"
    + "    subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1], *sys.argv[3:]],"
    + " start_new_session=len(sys.argv) == 3)\n"
    + "time.sleep(600)\n"
)


def start(script: str, *arguments: str, grace: float = 5.0) -> subprocess.Popen[bytes]:
    """Start a script under the reaper, as an engine is started."""
    return subprocess.Popen(
        [sys.executable, REAPER, "--grace", str(grace), "--", sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def start_family(pids: Path, grace: float = 5.0) -> subprocess.Popen[bytes]:
    """Start an engine with a child and a grandchild."""
    return start(FAMILY, str(pids), FAMILY, SLEEP, grace=grace)


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A file for process ids; what a failed test leaves behind is ended."""
    path = tmp_path / "pids"
    yield path
    for pid in path.read_text().split() if path.exists() else []:
        if not gone(int(pid)):
            os.kill(int(pid), signal.SIGKILL)


def test_exit_code_of_the_engine_is_passed_on() -> None:
    with start("raise SystemExit(7)") as process:
        assert process.wait(10) == 7


def test_engine_ended_by_a_signal_gives_128_and_its_number() -> None:
    with start("import os; os.kill(os.getpid(), 9)") as process:
        assert process.wait(10) == 128 + 9


def test_command_that_does_not_exist_gives_127() -> None:
    with subprocess.Popen(
        [sys.executable, REAPER, "--", "/no/such/program"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        _, error = process.communicate(timeout=10)
    assert process.returncode == 127
    assert b"cannot start /no/such/program" in error


@pytest.mark.parametrize(
    "arguments", [["true"], ["--"], ["--grace", "--", "true"], ["--other", "1", "--", "true"]]
)
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage"):
        reaper.main(arguments)


def test_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "socket").touch()
    command = [sys.executable, REAPER, "--remove", str(folder), "--", sys.executable, "-c", "pass"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(10) == 0
    assert not folder.exists()


def test_closing_the_pipe_ends_every_generation(pids: Path) -> None:
    with start_family(pids) as process:
        family = pids_in(pids, 3)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 128 + signal.SIGTERM
        assert all(gone(pid) for pid in family)


def test_sigterm_to_the_reaper_ends_every_generation(pids: Path) -> None:
    with start_family(pids) as process:
        family = pids_in(pids, 3)
        process.terminate()
        process.wait(10)
        assert all(gone(pid) for pid in family)


def test_death_of_the_main_process_alone_ends_the_others(pids: Path) -> None:
    with start_family(pids) as process:
        family = pids_in(pids, 3)
        os.kill(family[0], signal.SIGKILL)
        assert process.wait(10) == 128 + signal.SIGKILL
        assert all(gone(pid) for pid in family)


def test_process_that_ignores_sigterm_is_killed_after_the_grace(pids: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    with start(stubborn, str(pids), grace=0.5) as process:
        (pid,) = pids_in(pids, 1)
        began = time.monotonic()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 128 + signal.SIGKILL
        assert time.monotonic() - began >= 0.5
        assert gone(pid)


def test_main_process_has_time_to_end_its_own_helpers(pids: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    # Were the child asked to end at the same time, it would be found ended here.
    polite = (
        "import os, signal, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def end(*_):\n"
        "    time.sleep(0.3)\n"
        "    open(sys.argv[2], 'w').write('alive' if child.poll() is None else 'ended')\n"
        "    child.kill(); child.wait(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n{child.pid}\\n')\n"
        "time.sleep(600)\n"
    )
    with start(polite, str(pids), str(note)) as process:
        pids_in(pids, 2)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
    assert note.read_text() == "alive"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_of_the_parent_ends_every_generation(pids: Path, number: signal.Signals) -> None:
    parent_script = (
        "import subprocess, sys, time\n"
        "reaper = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, REAPER, "--", sys.executable, "-c", FAMILY, str(pids), FAMILY, SLEEP]
    with subprocess.Popen([sys.executable, "-c", parent_script, *command]) as parent:
        family = pids_in(pids, 3)
        parent.send_signal(number)
    wait_until(lambda: all(gone(pid) for pid in family))


def test_death_of_the_parent_is_noticed_though_another_process_holds_the_pipe(pids: Path) -> None:
    parent_script = (
        "import os, subprocess, sys, time\n"
        "reaper = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
        "holder = os.fork()\n"
        "if holder: open(sys.argv[-1], 'a').write(f'{holder}\\n')\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, REAPER, "--", sys.executable, "-c", SLEEP, str(pids)]
    with subprocess.Popen([sys.executable, "-c", parent_script, *command]) as parent:
        both = pids_in(pids, 2)
        parent.kill()
    wait_until(lambda: sum(gone(pid) for pid in both) == 1)  # the holder of the pipe lives on


def test_engine_dies_with_a_killed_reaper(pids: Path) -> None:
    with start(SLEEP, str(pids)) as process:
        (pid,) = pids_in(pids, 1)
        process.kill()
        wait_until(lambda: gone(pid))
