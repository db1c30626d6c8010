"""The helper process: answers, limits, and what becomes of one that is lost."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
import pytest

from batch_pipelines.preflight.helper import Helper, HelperExhausted, HelperLost, HelperUnusable
from tests.support.processes import gone, wait_until

MEMORY = 2**30
ECHO = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "die":
        os.kill(os.getpid(), 11)
    if request["op"] == "exit":
        sys.exit(3)
    if request["op"] == "hang":
        time.sleep(600)
    if request["op"] == "half":
        sys.stdout.write("{")
        sys.stdout.flush()
        time.sleep(600)
    print(json.dumps({"pid": os.getpid(), "seen": request, "environment": dict(os.environ)}), flush=True)
"""

Make = Callable[[str], Helper]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Helper] = []

    def make(script: str = ECHO) -> Helper:
        made.append(Helper(memory_bytes=MEMORY, command=[sys.executable, "-I", "-S", "-c", script]))
        return made[-1]

    yield make
    for helper in made:
        helper.close()


def pid_of(helper: Helper) -> int:
    answer = helper.ask("pid", {}, seconds=10, loads={})
    return int(answer["pid"])


def test_one_process_answers_all_requests_within_their_limits(make: Make) -> None:
    helper = make(ECHO)
    first = helper.ask("do", {"what": "this"}, seconds=7, loads={})
    assert first["seen"] == {"what": "this", "op": "do", "seconds": 7, "memory": MEMORY}
    assert pid_of(helper) == first["pid"]


def test_what_a_request_needs_is_loaded_once_and_again_by_the_next_process(make: Make) -> None:
    helper = make(ECHO)
    loads = {"load_a": {"from": "x"}, "load_b": {}}
    helper.ask("do", {}, seconds=10, loads=loads)
    first = helper.load("load_a", {"from": "x"})
    assert first["seen"]["op"] == "load_a"
    assert "memory" not in first["seen"]
    assert helper.load("load_a", {"from": "x"}) is first
    with pytest.raises(HelperLost):
        helper.ask("die", {}, seconds=10, loads=loads)
    assert helper.load("load_a", {"from": "x"})["pid"] != first["pid"]


def test_what_cannot_be_loaded_is_not_tried_again_and_hinders_nothing_else(make: Make) -> None:
    helper = make(ECHO)
    for _ in range(2):
        with pytest.raises(HelperUnusable, match=r"^die ended the process that tried it \(SIGSEGV; "):
            helper.ask("do", {}, seconds=10, loads={"die": {}})
    before = pid_of(helper)
    with pytest.raises(HelperUnusable):
        helper.ask("do", {}, seconds=10, loads={"die": {}})
    assert pid_of(helper) == before


@pytest.mark.parametrize("op", ["hang", "half"])
def test_one_that_takes_too_long_is_ended_and_replaced(make: Make, op: str) -> None:
    helper = make(ECHO)
    before = pid_of(helper)
    with pytest.raises(HelperLost, match=r"^took more than 0\.2 s$"):
        helper.ask(op, {}, seconds=0.2, loads={})
    assert gone(before)
    assert pid_of(helper) != before


@pytest.mark.parametrize(("op", "how"), [("die", "SIGSEGV"), ("exit", "exit code 3")])
def test_one_that_dies_is_replaced_and_it_is_said_how(make: Make, op: str, how: str) -> None:
    helper = make(ECHO)
    before = pid_of(helper)
    with pytest.raises(HelperLost, match=f"^ended the process that tried it \\({how}; it may take 1 GiB\\)$"):
        helper.ask(op, {}, seconds=10, loads={})
    assert pid_of(helper) != before


def test_one_that_does_not_even_read_is_lost_too(make: Make) -> None:
    helper = make("import sys; sys.exit(1)")
    with pytest.raises(HelperLost, match="exit code 1"):
        helper.ask("do", {"text": "x" * 2**20}, seconds=10, loads={})


def test_it_gets_no_secrets_and_no_devices(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DAGSTER_CLOUD_TOKEN", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment = make(ECHO).ask("do", {}, seconds=10, loads={})["environment"]
    assert "secret" not in environment.values()
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["LANG"] == "C.UTF-8"


def test_closing_ends_it_and_may_be_repeated(make: Make) -> None:
    helper = make(ECHO)
    process = psutil.Process(pid_of(helper))
    helper.close()
    helper.close()
    assert gone(process.pid)


def test_the_real_one_ends_with_its_parent() -> None:
    starts_one = (
        "import os, sys\n"
        "from batch_pipelines.preflight.helper import Helper\n"
        "helper = Helper(memory_bytes=2**30)\n"
        "helper.ask('variables', {'template': 'a'}, seconds=30, loads={})\n"
        "print(helper._process.pid, flush=True)\n"
        "os._exit(0)\n"
    )
    read, write = os.pipe()
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-c", starts_one],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
    )
    os.close(write)
    with os.fdopen(read) as lines:
        pid = int(lines.readline())
    os.wait()
    wait_until(lambda: gone(pid))


def test_the_real_one_keeps_the_time_by_itself() -> None:
    """Whoever asked may be gone while it tries something that never ends."""
    request = {
        "op": "render",
        "seconds": -1.5,
        "template": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "chat": {"messages": []},
        "special_tokens": {},
        "characters": 10,
        "enough": None,
    }
    command = [sys.executable, "-P", "-m", "batch_pipelines.preflight.child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(20) == -signal.SIGALRM


def test_a_job_that_keeps_losing_the_helper_tries_no_more() -> None:
    class Lossy(Helper):
        exchanges = 0

        def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
            del request
            Lossy.exchanges += 1
            raise HelperLost("took more than 1 s")

    helper = Lossy(memory_bytes=1)
    for _ in range(60):
        with pytest.raises(HelperLost):
            helper.ask("render", {}, seconds=1, loads={})
    with pytest.raises(HelperExhausted, match="after 60 others"):
        helper.ask("render", {}, seconds=1, loads={})
    assert Lossy.exchanges == 60
