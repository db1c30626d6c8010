"""One vLLM engine over two nodes: processes that find each other as pods do, each with half of the layers."""

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

import orjson
import psutil
import pytest

from batch_pipelines.engines.gang import NodeLost
from batch_pipelines.engines.needs import NO_NEEDS
from batch_pipelines.engines.protocol import Engine, EngineDied, EngineReply, EngineRequest
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.hardware import write_hardware
from batch_pipelines.kubernetes.rendezvous import gang_place
from batch_pipelines.models.smollm2 import NAME as MODEL
from batch_pipelines.models.smollm2 import ensure_smollm2
from batch_pipelines.settings import Settings
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.validate import store_request
from resources.deployment import engines_of
from tests.support.jobs import chat, make_job, make_request, shard, write_input
from tests.support.processes import gone, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

FRANCE = "Complete the sentence: The capital of France is"
RUN = "run"
GROUP = "dagster-step-1"
TWO_NODES = Hardware(1000, 1, 2**30, 2**30, "nvidia-tesla-t4", 2, 1, 2, ())
SETTINGS = {
    "BATCH_PIPELINES_ENGINE_ARGS": '{"enforce_eager": true, "max_model_len": 1024, "max_num_seqs": 8}',
    "BATCH_PIPELINES_ENGINE_ENV": orjson.dumps(
        {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    ).decode(),
}
PLACE = {"JOB_NAME": GROUP, "POD_IP": "127.0.0.1"}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose items are sharded and whose hardware is decided, in a deployment for real vLLM."""
    made = make_job(tmp_path)
    models = ensure_smollm2(Settings().models).parent
    places = {"BATCH_PIPELINES_STORE": made.folder.store, "BATCH_PIPELINES_MODELS_DIR": str(models)}
    for name, value in (SETTINGS | places).items():
        monkeypatch.setenv(name, value)
    write_input(tmp_path, [chat(FRANCE)])
    request = make_request(tmp_path, model_config={"model": MODEL})
    store_request(made.store, made.folder, request)
    shard(made, request)
    write_hardware(made.store, made.folder, RUN, TWO_NODES)
    return made


class Node:
    """The other node's process, and what it prints."""

    def __init__(self, job: Job) -> None:
        environment: Mapping[str, str] = {
            **os.environ,
            **PLACE,
            "BATCH_PIPELINES_JOB_ID": job.folder.job_id,
            "JOB_COMPLETION_INDEX": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "batch_pipelines.kubernetes.node"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def family(self) -> list[int]:
        """Ids of the engine's processes on this node."""
        return [process.pid for process in psutil.Process(self.process.pid).children(recursive=True)]

    def worker(self) -> int:
        """Id of the process that has this node's layers."""
        found = [
            process.pid
            for process in psutil.Process(self.process.pid).children(recursive=True)
            if "Worker" in " ".join(process.cmdline())
        ]
        assert len(found) == 1
        return found[0]

    def wait(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append(line.rstrip())


@contextmanager
def other_node(job: Job) -> Iterator[Node]:
    node = Node(job)
    try:
        yield node
    finally:
        node.close()


@contextmanager
def first_node(job: Job, tmp_path: Path, log: list[str]) -> Iterator[Engine]:
    place = gang_place(job.store, job.folder, RUN, PLACE | {"JOB_COMPLETION_INDEX": "0"})
    request = make_request(tmp_path, model_config={"model": MODEL})
    with engines_of(Settings()).ready(
        request, NO_NEEDS, TWO_NODES, gang=place, check=lambda: None, log=log.append
    ) as make_engine:
        yield make_engine()


def ask(content: str, **fields: object) -> EngineRequest:
    messages = [{"role": "user", "content": content}]
    body = {"model": MODEL, "messages": messages, "temperature": 0.0, "max_tokens": 20, **fields}
    return EngineRequest("/v1/chat/completions", orjson.dumps(body))


def text_of(reply: EngineReply) -> str:
    assert reply.status == 200, reply.body
    return str(orjson.loads(reply.body)["choices"][0]["message"]["content"])


async def deaths(engine: Engine, cause: int) -> tuple[set[str], float]:
    """Kill a process while requests are in flight: what they say, and after how many seconds."""
    endless = ask("Tell me a very long story.", max_tokens=900, ignore_eos=True)
    running = [asyncio.create_task(engine.send(endless)) for _ in range(3)]
    await engine.send(ask("Hello", max_tokens=2))
    began = time.monotonic()
    os.kill(cause, signal.SIGKILL)
    results = await asyncio.gather(*running, return_exceptions=True)
    assert [type(result) for result in results] == [EngineDied] * 3
    return {str(result) for result in results}, time.monotonic() - began


def test_answers_survives_a_dead_part_and_ends_with_a_lost_node(job: Job, tmp_path: Path) -> None:
    log: list[str] = []

    async def check(engine: Engine, node: Node) -> None:
        await engine.start()
        assert "Paris" in text_of(await engine.send(ask(FRANCE)))
        first = node.family()

        (why,), seconds = await deaths(engine, node.worker())
        assert why.startswith("the engine died: its part on node 1 (127.0.0.1) exited with code ")
        assert seconds < 20

        await engine.start()
        assert all(gone(pid) for pid in first)
        assert "Paris" in text_of(await engine.send(ask(FRANCE)))
        second = node.family()

        (why,), seconds = await deaths(engine, node.process.pid)
        assert why == "the engine died: node 1 (127.0.0.1) is lost: it closed the connection"
        assert seconds < 10
        with pytest.raises(NodeLost, match="node 1"):
            await engine.start()
        await asyncio.to_thread(wait_until, lambda: all(gone(pid) for pid in second), within_sec=20)

    async def run(engine: Engine, node: Node) -> None:
        try:
            await check(engine, node)
        finally:
            await engine.stop()

    with other_node(job) as node, first_node(job, tmp_path, log) as engine:
        asyncio.run(run(engine, node))
    left = [" ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)]
    assert not [line for line in left if "vllm" in line.lower()]


def test_lost_first_node_ends_the_other_with_its_part(job: Job, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.integration.test_gang_on_vllm import first_node\n"
        "from tests.support.jobs import make_job\n"
        "folder = Path(sys.argv[1])\n"
        "with first_node(make_job(folder), folder, []) as engine:\n"
        "    asyncio.run(engine.start())\n"
    )
    with other_node(job) as node:
        first = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
        try:
            wait_until(lambda: len(node.family()) >= 2, within_sec=120)
            parts = node.family() + [each.pid for each in psutil.Process(first.pid).children(recursive=True)]
        finally:
            first.kill()
            first.wait()
        began = time.monotonic()
        assert node.wait() == 1
        assert time.monotonic() - began < 15
        wait_until(lambda: all(gone(pid) for pid in parts), within_sec=30)
    assert any("the leader is gone" in line for line in node.lines)
