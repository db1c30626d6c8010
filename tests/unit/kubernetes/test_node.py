"""What the pods of a replica with several nodes run, as processes, with the fake engine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import orjson
import pytest

from batch_pipelines.engines.gang import NodeLost, Rendezvous
from batch_pipelines.engines.needs import NO_NEEDS
from batch_pipelines.engines.protocol import Engine, EngineRequest, EngineStartError
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.hardware import write_hardware
from batch_pipelines.kubernetes.rendezvous import gang_place, read_note, say_over
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.validate import store_request
from resources.fake_engines import FakeEngines
from tests.support.jobs import chat, make_job, make_request, shard, write_input
from tests.support.processes import wait_until

RUN = "run"
GROUP = "dagster-step-1"
TWO_NODES = Hardware(1000, 1, 2**30, 2**30, "nvidia-tesla-t4", 2, 1, 2, ())
LEADER = {"JOB_COMPLETION_INDEX": "0", "JOB_NAME": GROUP, "POD_IP": "127.0.0.1"}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose items are sharded and whose hardware is decided."""
    made = make_job(tmp_path)
    write_input(tmp_path, [chat("hello")])
    request = make_request(tmp_path)
    store_request(made.store, made.folder, request)
    shard(made, request)
    write_hardware(made.store, made.folder, RUN, TWO_NODES)
    return made


class Pod:
    """A pod's process and what it prints."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        assert process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=[process.stderr], daemon=True)
        self._reader.start()

    def wait(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def says(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.lines), within_sec=60)

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self.lines.append(line.decode())


@contextmanager
def pod(job: Job, index: str | None, *command: str, **settings: str) -> Iterator[Pod]:
    environment: Mapping[str, str] = {
        **os.environ,
        "BATCH_PIPELINES_STORE": job.folder.store,
        "BATCH_PIPELINES_JOB_ID": job.folder.job_id,
        "BATCH_PIPELINES_ENGINE": "fake",
        "JOB_NAME": GROUP,
        "POD_IP": "127.0.0.1",
        **({} if index is None else {"JOB_COMPLETION_INDEX": index}),
        **settings,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "batch_pipelines.kubernetes.node", *command],
        env=environment,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield Pod(process)
        finally:
            process.kill()


@contextmanager
def first_pod(job: Job, tmp_path: Path, log: list[str]) -> Iterator[Engine]:
    """The first pod's side, in this process: an engine whose other node has joined."""
    place = gang_place(job.store, job.folder, RUN, LEADER)
    engines = FakeEngines()
    with engines.ready(
        make_request(tmp_path), NO_NEEDS, TWO_NODES, gang=place, check=lambda: None, log=log.append
    ) as make_engine:
        yield make_engine()


async def answered(engine: Engine) -> int:
    await engine.start()
    reply = await engine.send(EngineRequest("/v1/completions", orjson.dumps({"prompt": "hello"})))
    await engine.stop()
    return reply.status


def test_pod_without_a_number_is_the_command(job: Job) -> None:
    script = "import os, sys; print(os.getpid(), file=sys.stderr); sys.exit(7)"
    with pod(job, None, sys.executable, "-c", script) as alone:
        assert alone.wait() == 7
    assert alone.lines == [f"{alone.process.pid}\n"]
    assert read_note(job.store, job.folder, GROUP) is None


def test_first_pod_runs_the_command_and_says_that_it_is_over(job: Job) -> None:
    with pod(job, "0", sys.executable, "-c", "raise SystemExit(3)") as first:
        assert first.wait() == 3
    note = read_note(job.store, job.folder, GROUP)
    assert note is not None
    assert note.over


def test_first_pod_hands_on_sigterm(job: Job) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up', file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    with pod(job, "0", sys.executable, "-c", script) as first:
        first.says("up")
        first.process.send_signal(signal.SIGTERM)
        assert first.wait() == 5


def test_step_that_needs_no_engine_lets_the_other_pods_go(job: Job) -> None:
    with pod(job, "1") as other:
        other.says("node 1 looks for the first one")
        say_over(job.store, job.folder, GROUP)
        assert other.wait() == 0
    assert "the first node has ended" in other.lines[-1]


def test_member_joins_serves_and_ends_with_the_work(job: Job, tmp_path: Path) -> None:
    log: list[str] = []
    with pod(job, "1") as other:
        with first_pod(job, tmp_path, log) as engine:
            assert asyncio.run(answered(engine)) == 200
        assert other.wait() == 0
    assert "node 1 (127.0.0.1) is ready" in log
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gang-")]
    assert any("start 1 of the engine" in line for line in other.lines)
    assert "all is done" in other.lines[-1]
    note = read_note(job.store, job.folder, GROUP)
    assert note is not None
    assert note.token not in "".join(log + other.lines)


def test_member_ends_at_once_on_sigterm_and_the_first_pod_hears_why(job: Job, tmp_path: Path) -> None:
    log: list[str] = []

    async def run(engine: Engine, other: Pod) -> None:
        await engine.start()
        other.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert await asyncio.to_thread(other.wait) == 128 + signal.SIGTERM
        assert time.monotonic() - began < 10
        await asyncio.to_thread(wait_until, lambda: any("gave up" in line for line in log))
        with pytest.raises(NodeLost, match=r"node 1 \(127.0.0.1\) gave up: its pod was told to end"):
            await engine.start()

    with pod(job, "1") as other, first_pod(job, tmp_path, log) as engine:
        asyncio.run(run(engine, other))


def test_member_ends_when_the_first_pod_is_killed(job: Job, tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.support.jobs import make_job\n"
        "from tests.unit.kubernetes.test_node import first_pod\n"
        "folder = Path(sys.argv[1])\n"
        "with first_pod(make_job(folder), folder, []):\n"
        "    time.sleep(600)\n"
    )
    with (
        pod(job, "1") as other,
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) as first,
    ):
        other.says("joined the leader")
        first.kill()
        began = time.monotonic()
        assert other.wait() == 1
        assert time.monotonic() - began < 10
    assert "the leader is gone" in other.lines[-1]


def test_member_gives_up_when_no_first_pod_comes(job: Job) -> None:
    place = gang_place(job.store, job.folder, RUN, LEADER)
    assert place is not None
    place.announce(Rendezvous("127.0.0.1", 9, "of a pod that is gone"))
    with pod(job, "1", BATCH_PIPELINES_POD_START_TIMEOUT_SEC="0.1") as other:
        assert other.wait() == 1
    assert "was not found within 0.1 s: nobody answers at 127.0.0.1:9" in other.lines[-1]


def test_member_without_a_plan_tells_the_first_pod(job: Job, tmp_path: Path) -> None:
    job.store.delete(job.folder.hardware(RUN))
    log: list[str] = []
    with pod(job, "1") as other:
        with (
            pytest.raises(NodeLost, match=r"node 1 .* gave up: the job's folder has no plan of run"),
            first_pod(job, tmp_path, log),
        ):
            pass
        assert other.wait() == 0  # why is the first pod's to report, and its Job must not fail before that


def test_several_nodes_without_pods_for_them_is_an_error(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert gang_place(job.store, job.folder, RUN, {"POD_IP": "127.0.0.1"}) is None
    with (
        pytest.raises(EngineStartError, match="nodes_per_worker is 2, but this step has one node"),
        FakeEngines().ready(
            make_request(tmp_path, content=[{"prompt": "a"}]),
            NO_NEEDS,
            TWO_NODES,
            check=lambda: None,
            log=print,
        ),
    ):
        pass
