"""vLLM's parts on several nodes, with stand-ins for both programs."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import orjson
import pytest

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines.gang import Start
from batch_pipelines.engines.protocol import EngineRequest, EngineSpec
from batch_pipelines.engines.vllm_args import engine_args
from batch_pipelines.engines.vllm_nodes import VLLM_HEADLESS_COMMAND, start_vllm_part
from batch_pipelines.engines.vllm_server import VLLMServer
from tests.support import stand_in_server
from tests.support.processes import wait_until

PRINT_AND_WAIT = (
    sys.executable,
    "-c",
    "import json, os, sys, time\n"
    "print(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)\n"
    "time.sleep(600)\n",
)
START = Start(incarnation=3, nodes=2, address="127.0.0.1", port=23456)
NODES = ["--nnodes=2", "--master-addr=127.0.0.1", "--master-port=23456", "--distributed-executor-backend=mp"]


def spec(log: list[str]) -> EngineSpec:
    config = BatchCompletionsModelConfig(
        model="tiny", pipeline_parallel_size=2, max_num_seqs=8, dtype="float32"
    )
    return EngineSpec("/models/tiny", "tiny", config, environment={"EXTRA": "1"}, log=log.append)


async def server_arguments(server: VLLMServer) -> list[str]:
    await server.start()
    try:
        reply = await server.send(EngineRequest("/v1/completions", orjson.dumps({"prompt": "hello"})))
        arguments: list[str] = orjson.loads(reply.body)["arguments"]
        return arguments
    finally:
        await server.stop()


def test_parts_differ_in_their_rank_and_in_what_answers_only() -> None:
    log: list[str] = []
    server = VLLMServer(spec([]), command=(sys.executable, stand_in_server.__file__))
    server.lead(START)
    first = asyncio.run(server_arguments(server))
    part = start_vllm_part(spec(log), START, 1, "127.0.0.9", command=PRINT_AND_WAIT)
    try:
        wait_until(lambda: bool(log))
        other, environment = json.loads(log[0])
    finally:
        part.stop()
    assert set(NODES) | {"--node-rank=0"} <= set(first)
    assert set(first) - set(other) - {each for each in first if each.startswith("--uds=")} == {
        "--node-rank=0",
        "--disable-uvicorn-access-log",
    }
    assert set(other) - set(first) == {"--node-rank=1", "--headless"}
    assert environment["VLLM_HOST_IP"] == "127.0.0.9"
    assert environment["EXTRA"] == "1"
    assert Path(environment["VLLM_RPC_BASE_PATH"]).name.startswith("engine-")


def test_part_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        log: list[str] = []
        part = start_vllm_part(spec(log), START, 1, "127.0.0.1", command=PRINT_AND_WAIT)
        wait_until(lambda: bool(log))
        assert list(Path(short).iterdir())
        part.stop()
        assert part.ended
        assert not list(Path(short).iterdir())


def test_server_that_leads_nobody_has_no_arguments_of_several_nodes() -> None:
    server = VLLMServer(spec([]), command=(sys.executable, stand_in_server.__file__))
    arguments = asyncio.run(server_arguments(server))
    assert not any("nnodes" in each or "master" in each or "executor" in each for each in arguments)


def test_launcher_is_a_file_of_the_package() -> None:
    assert Path(VLLM_HEADLESS_COMMAND[-1]).is_file()


def test_stages_on_cpu_are_warmed_up_even_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = BatchCompletionsModelConfig(model="tiny", enforce_eager=True, pipeline_parallel_size=2)
    one_stage = eager.model_copy(update={"pipeline_parallel_size": 1})
    monkeypatch.setattr("batch_pipelines.engines.vllm_args.is_cpu_build", lambda: True)
    assert engine_args(eager, {}).args[0] == "--no-enforce-eager"
    assert '--compilation-config={"mode":1,"backend":"eager"}' in engine_args(eager, {}).args
    assert engine_args(one_stage, {}).args[0] == "--enforce-eager"
    monkeypatch.setattr("batch_pipelines.engines.vllm_args.is_cpu_build", lambda: False)
    assert engine_args(eager, {}).args[0] == "--enforce-eager"
