"""Code in the sandbox reaches nothing, uses no more than it may, and leaves nothing behind."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from batch_pipelines.tool_use.bubblewrap import SandboxLimits
from batch_pipelines.tool_use.sandbox import CodeResult, Sandbox
from batch_pipelines.tool_use.sandbox_check import open_sandbox
from tests.support.processes import gone, wait_until

REPOSITORY = Path(__file__).parents[3]
SMALL = SandboxLimits(memory_bytes=2**28 + os.getpid(), processes=24, output_bytes=1000)


@pytest.fixture
def small(sandbox: Sandbox) -> Sandbox:
    """Has low limits, so that reaching them takes no time."""
    del sandbox  # which skips the test where there is none
    return open_sandbox(limits=SMALL)


def result_of(sandbox: Sandbox, code: str, timeout_sec: float = 20.0, **arguments: Any) -> CodeResult:
    result = asyncio.run(sandbox.run(code, timeout_sec=timeout_sec, **arguments))
    assert processes_of(sandbox) == []
    return result


def output_of(sandbox: Sandbox, code: str) -> str:
    result = result_of(sandbox, code)
    assert result.exit_code == 0, result.stdout
    return result.stdout


def processes_of(sandbox: Sandbox) -> list[int]:
    """Every process of this sandbox on the machine, whoever its parent is by now."""
    mark = f'"RLIMIT_AS": {sandbox.bubblewrap.limits.memory_bytes},'
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(mark in part for part in process.info["cmdline"] or ()) and not gone(process.pid)
    ]


# What it computes


def test_output_is_what_was_printed_on_both_streams_in_order(sandbox: Sandbox) -> None:
    code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\nprint('é', end='')"
    assert result_of(sandbox, code).stdout == "1\n2\né"


def test_last_expression_is_shown_as_at_a_prompt(sandbox: Sandbox) -> None:
    assert output_of(sandbox, "x = 'a'\nx * 2") == "'aa'\n"
    assert output_of(sandbox, "None") == ""
    assert output_of(sandbox, "1\n2\nprint(3)") == "3\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f():\n    1/0\nf()", 'File "<code>", line 2, in f\n    1/0'),
        ("x = (", "SyntaxError"),
        ("a\0b", "null bytes"),
        ("x = '\udc80'", "UnicodeEncodeError"),
        ("(" * 100_000, "too many nested parentheses"),
        ("raise ValueError('a' * 10**6)", "aaaa"),
        ("import sys\nsys.exit('the end')", "the end"),
        ("input()", "EOFError"),
        ("import numpy", "No module named 'numpy'"),
    ],
)
def test_error_is_told_without_the_runner_s_own_frames(sandbox: Sandbox, code: str, said: str) -> None:
    result = result_of(sandbox, code)
    assert result.exit_code == 1
    assert said in result.stdout
    assert len(result.stdout) < 5000
    assert "<string>" not in result.stdout


def test_exit_code_and_crash_are_those_of_the_program(sandbox: Sandbox) -> None:
    assert result_of(sandbox, "exit(3)").exit_code == 3
    assert result_of(sandbox, "import ctypes\nctypes.string_at(0)").exit_code == 128 + signal.SIGSEGV


def test_bytes_that_are_no_text_are_replaced(sandbox: Sandbox) -> None:
    assert output_of(sandbox, "import os\nos.write(1, b'a\\xffb')\nNone") == "a\ufffdb"


def test_classes_processes_and_time_zones_work(sandbox: Sandbox) -> None:
    code = (
        "import dataclasses, multiprocessing, tempfile, zoneinfo\n"
        "@dataclasses.dataclass\nclass A:\n    x: int = 1\n"
        "tempfile.TemporaryFile().write(b'a')\n"
        "with multiprocessing.Pool(2) as pool:\n    print(pool.map(abs, [-1, -2]), A())"
    )
    assert output_of(sandbox, code) == "[1, 2] A(x=1)\n"


def test_it_runs_in_a_loop_of_any_thread(sandbox: Sandbox) -> None:
    results: list[CodeResult] = []
    thread = threading.Thread(target=lambda: results.append(result_of(sandbox, "6 * 7")))
    thread.start()
    thread.join()
    assert [result.stdout for result in results] == ["42\n"]


# What it cannot reach


def test_network_has_nothing_in_it(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""
import socket
print([name for _, name in socket.if_nameindex()])
own = ("127.0.0.1", {server.getsockname()[1]})
for address in [own, ("169.254.169.254", 80), ("10.0.0.1", 53), ("::1", 80)]:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as attempt:
            attempt.settimeout(2)
            try:
                attempt.connect(address)
                attempt.send(b"hello")
                print("sent to", address)
                attempt.recv(1)
                print("answered by", address)
            except OSError:
                pass
"""
        said = output_of(sandbox, code).splitlines()
        assert said[0] == "['lo']"
        # Within its own empty network a datagram to itself can be sent; nobody is there to answer.
        assert all(line.startswith(("sent to ('127.0.0.1'", "sent to ('::1'")) for line in said[1:])
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_host_s_unix_sockets_are_out_of_reach(sandbox: Sandbox) -> None:
    name = f"\0batch-pipelines-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = (
            "import socket\ns = socket.socket(socket.AF_UNIX)\n"
            f"try:\n    s.connect({name!r})\nexcept ConnectionRefusedError:\n    print('refused')"
        )
        assert output_of(sandbox, code) == "refused\n"


def test_files_outside_are_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    names = [
        "/etc/shadow", "/etc/passwd", "/proc", "/sys", "/home", "/var", "/run", "/opt", "/usr/bin/env",
        str(Path.home()), str(REPOSITORY), str(Path(sys.prefix)), str(secret), str(Path.cwd()),
    ]  # fmt: skip
    code = f"import os\nprint([name for name in {names} if os.path.exists(name)])"
    assert output_of(sandbox, code) == "[]\n"


def test_everything_to_be_seen_is_the_system_s_or_its_own(sandbox: Sandbox) -> None:
    seen = json.loads(output_of(sandbox, "import json, os\nprint(json.dumps(sorted(os.listdir('/'))))"))
    assert {"dev", "tmp", "usr", "sandbox"} <= set(seen)
    assert not {"proc", "sys", "home", "var", "run", "mnt", "opt", "srv"} & set(seen)


def test_packages_of_the_python_it_runs_on_are_hidden(sandbox: Sandbox) -> None:
    code = "import os, site\n[f for f in site.getsitepackages() if os.path.exists(f) and os.listdir(f)]"
    assert output_of(sandbox, code) == "[]\n"


def test_environment_has_nothing_of_this_process(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-7d1f")
    code = (
        "import os\nprint(sorted(os.environ))\n"
        "for root, _, files in os.walk('/'):\n"
        "    if root.startswith(('/sandbox', '/tmp', '/etc', '/dev/shm')):\n"
        "        for name in files:\n            print(open(os.path.join(root, name), 'rb').read(1000))"
    )
    said = output_of(sandbox, code)
    assert said.startswith("['HOME', 'LANG', 'OMP_NUM_THREADS', 'PATH', 'PWD']\n")
    assert "canary" not in said


@pytest.mark.parametrize(
    "name", ["/x", "/dev/x", "/etc/x", "/usr/lib/x", "/usr/x", "/lib64/x", "/dev/shm/../x", "/sandbox/../x"]
)
def test_nothing_can_be_written_outside_its_folder(sandbox: Sandbox, name: str) -> None:
    assert "Read-only file system" in result_of(sandbox, f"open({name!r}, 'w')").stdout
    code = f"open('/sandbox/{Path(name).name}', 'w').write('a')\nopen('x').read()"
    assert output_of(sandbox, code) == "'a'\n"


def test_two_runs_share_no_files(sandbox: Sandbox) -> None:
    output_of(sandbox, "open('a', 'w').write('1')")
    assert output_of(sandbox, "import os\nos.listdir('.'), os.listdir('/dev/shm')") == "([], [])\n"


def test_it_is_nobody_without_rights_or_company(sandbox: Sandbox) -> None:
    code = """
import ctypes, os
print(os.getresuid(), os.getresgid(), os.getpid())
attempts = [(os.setuid, 0), (os.chroot, "/sandbox"), (os.kill, -1, 0), (os.nice, -5)]
for attempt, *arguments in attempts:
    try:
        attempt(*arguments)
        print("worked")
    except OSError as error:
        print(type(error).__name__)
print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))
"""
    lines = output_of(sandbox, code).splitlines()
    assert lines[0] == "(65534, 65534, 65534) (65534, 65534, 65534) 1"
    assert set(lines[1:5]) <= {"PermissionError", "OSError", "ProcessLookupError"}
    assert lines[5] == "1"


def test_kernel_s_back_doors_are_shut(sandbox: Sandbox) -> None:
    clone, bpf = (56, 321) if os.uname().machine == "x86_64" else (220, 280)
    calls = {
        "memfd_create": "os.memfd_create('a')",
        "shmget": "check(libc.shmget(0, 4096, 0o1600))",
        "unshare": "check(libc.unshare(0x10000000))",
        "clone": f"check(libc.syscall({clone}, 0x10000011, 0, 0, 0, 0))",
        "ptrace": "check(libc.ptrace(0, 0, 0, 0))",
        "mount": "check(libc.mount(b'a', b'/sandbox', b'tmpfs', 0, None))",
        "bpf": f"check(libc.syscall({bpf}, 0, 0, 0))",
    }
    attempts = "\n".join(
        f"try:\n    {call}\n    print({name!r})\nexcept PermissionError:\n    pass"
        for name, call in calls.items()
    )
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def check(value):\n    if value < 0:\n        raise OSError(ctypes.get_errno(), 'no')\n" + attempts
    )
    assert output_of(sandbox, code) == ""


# What it cannot use up


def test_endless_loop_is_stopped_in_time(sandbox: Sandbox) -> None:
    result = result_of(sandbox, "print('on')\nwhile True: pass", 0.5)
    assert (result.stdout, result.exit_code, result.timed_out) == ("on\n", None, True)
    assert 0.5 <= result.seconds < 5


def test_program_that_hides_its_end_is_stopped_too(sandbox: Sandbox) -> None:
    code = "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.close(1)\nos.close(2)\nwhile True: pass"
    assert result_of(sandbox, code, 0.5).timed_out


def test_process_left_behind_ends_with_its_parent(sandbox: Sandbox) -> None:
    code = "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nprint('done')"
    result = result_of(sandbox, code, 60)
    assert (result.stdout, result.exit_code) == ("done\n", 0)
    assert result.seconds < 30


def test_fork_bomb_is_bounded_and_gone(small: Sandbox) -> None:
    code = (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n"
        "        open('full', 'a').write('x')"
    )
    most = 0

    async def scenario() -> CodeResult:
        nonlocal most
        running = asyncio.create_task(small.run(code, timeout_sec=1.0))
        while not running.done():
            most = max(most, len(processes_of(small)))
            await asyncio.wait([running], timeout=0.05)
        return running.result()

    result = asyncio.run(scenario())
    assert processes_of(small) == []
    assert result.timed_out or result.out_of_memory
    assert most <= SMALL.processes + 3  # bubblewrap's own, and the one that is about to start


def test_threads_count_as_processes(small: Sandbox) -> None:
    code = (
        "import threading, time\nn = 0\ntry:\n    for n in range(100):\n"
        "        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n"
        "except RuntimeError:\n    print(n)"
    )
    assert 0 < int(output_of(small, code)) < SMALL.processes


def test_one_process_that_takes_too_much_memory_is_refused_it(small: Sandbox) -> None:
    result = result_of(small, "x = []\nwhile True: x.append(bytearray(10**7))")
    assert result.exit_code == 1
    assert "MemoryError" in result.stdout


def test_many_processes_that_take_too_much_memory_together_are_stopped(small: Sandbox) -> None:
    code = (
        "import os, time\nfor _ in range(4): os.fork()\n"
        "x = bytearray(100 * 2**20)\nx[::4096] = b'a' * len(x[::4096])\ntime.sleep(60)"
    )
    result = result_of(small, code, 60)
    assert (result.exit_code, result.out_of_memory, result.timed_out) == (None, True, False)


def test_printing_for_ever_is_stopped_and_cut(small: Sandbox) -> None:
    result = result_of(small, "while True: print('é' * 1000)", 60)
    assert (result.exit_code, result.truncated, result.timed_out) == (None, True, False)
    assert 490 <= len(result.stdout) <= 501


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("f = open('a', 'wb')\nwhile True: f.write(bytes(2**20))", "File too large"),
        (
            "n = 0\nwhile True:\n    open(f'{n}', 'wb').write(bytes(2**20))\n    n += 1",
            "No space left on device",
        ),
        (
            "n = 0\nwhile True:\n    open(f'/dev/shm/{n}', 'wb').write(bytes(2**20))\n    n += 1",
            "No space left",
        ),
        ("import os\nwhile True: os.dup(1)", "Too many open files"),
    ],
)
def test_files_are_bounded(sandbox: Sandbox, code: str, error: str) -> None:
    result = result_of(sandbox, code)
    assert result.exit_code == 1
    assert error in result.stdout


# How it is run


def test_earlier_pieces_run_silently_under_the_same_names(sandbox: Sandbox) -> None:
    before = ["import math\nprint('noise')\n5", "x = math.floor(2.5)\nexit()"]
    assert result_of(sandbox, "x + 1", before=before).stdout == "3\n"


def test_error_in_an_earlier_piece_is_told(sandbox: Sandbox) -> None:
    result = result_of(sandbox, "1", before=["print('noise')\n1/0"])
    assert result.exit_code == 1
    assert result.stdout.startswith('Traceback (most recent call last):\n  File "<earlier code 1>", line 2')


def test_runs_side_by_side_are_as_many_as_there_are_processors(sandbox: Sandbox) -> None:
    code = "import time\na = time.monotonic()\ntime.sleep(0.2)\nprint({}, a, time.monotonic())"

    async def scenario() -> list[CodeResult]:
        runs = (sandbox.run(code.format(n), timeout_sec=20) for n in range(6))
        return await asyncio.gather(*runs)

    spans = [tuple(map(float, result.stdout.split())) for result in asyncio.run(scenario())]
    assert [span[0] for span in spans] == [0, 1, 2, 3, 4, 5]
    most = max(sum(start <= at < end for _, start, end in spans) for _, at, _ in spans)
    assert most <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("code", "processes"),
    [("while True: pass", 2), ("import os\nfor _ in range(4): os.fork()\nwhile True: pass", 17)],
)
def test_cancelling_ends_every_process(sandbox: Sandbox, code: str, processes: int) -> None:
    async def scenario() -> list[int]:
        running = asyncio.create_task(sandbox.run(code, timeout_sec=60))
        while len(started := processes_of(sandbox)) < processes:
            await asyncio.wait([running], timeout=0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return started

    started = asyncio.run(scenario())
    assert not any(map(psutil.pid_exists, started))
    assert processes_of(sandbox) == []


@pytest.mark.parametrize(
    "end",
    ["pass", "exit(1)", "while True: pass", "while True: print('a' * 10**6)", "os.fork(); time.sleep(60)"],
)
def test_run_leaves_not_even_an_ended_process_to_collect(sandbox: Sandbox, end: str) -> None:
    """In a container there may be no init that would."""
    code = f"import os, time\nif os.fork() == 0: time.sleep(60)\ntime.sleep(0.3)\n{end}"

    async def scenario() -> set[int]:
        seen: set[int] = set()
        running = asyncio.create_task(sandbox.run(code, timeout_sec=0.6))
        while not running.done():
            seen |= set(processes_of(sandbox))
            await asyncio.wait([running], timeout=0.02)
        return seen

    seen = asyncio.run(scenario())
    assert len(seen) >= 3
    assert not any(map(psutil.pid_exists, seen))


def test_killing_this_process_ends_every_process(sandbox: Sandbox) -> None:
    del sandbox  # which skips the test where there is none
    program = (
        "import asyncio\nfrom batch_pipelines.tool_use.sandbox_check import open_sandbox\n"
        "asyncio.run(open_sandbox().run('import os; os.fork()\\nwhile True: pass', timeout_sec=100))"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY) as process:
        parent = psutil.Process(process.pid)
        wait_until(lambda: len(parent.children(recursive=True)) >= 3)
        started = parent.children(recursive=True)
        process.kill()
    wait_until(lambda: all(gone(child.pid) for child in started))
