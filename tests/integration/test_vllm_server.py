"""`VLLMServer` with the real vLLM on CPU and a real, small model."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import orjson
import psutil
import pytest

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines.protocol import (
    EngineDied,
    EngineReply,
    EngineRequest,
    EngineSpec,
    EngineStartError,
)
from batch_pipelines.engines.vllm_server import VLLMServer
from batch_pipelines.models.smollm2 import NAME, ensure_smollm2
from batch_pipelines.settings import Settings
from tests.support.processes import gone, wait_until

# The model is sure of this answer. Asked plainly for the capital, its best two first words are nearly tied,
# and the rounding of one CPU or another decides between English and French.
FRANCE = "Complete the sentence: The capital of France is"

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model() -> Path:
    """The converted model, from this machine's folder of models."""
    return ensure_smollm2(Settings().models)


def server(model: str, log: list[str], **model_config: object) -> VLLMServer:
    config = BatchCompletionsModelConfig.model_validate({"model": NAME, "max_num_seqs": 8, **model_config})
    defaults = {"enforce_eager": True, "max_model_len": 1024}
    return VLLMServer(
        EngineSpec(model, NAME, config, defaults, environment={"VLLM_CPU_KVCACHE_SPACE": "1"}, log=log.append)
    )


def chat(text: str, max_tokens: int = 24, **fields: object) -> EngineRequest:
    messages = [{"role": "user", "content": text}]
    body = {"model": NAME, "messages": messages, "temperature": 0, "max_tokens": max_tokens, **fields}
    return EngineRequest("/v1/chat/completions", orjson.dumps(body))


def text_of(reply: EngineReply) -> str:
    assert reply.status == 200, reply
    content = orjson.loads(reply.body)["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def family(engine: VLLMServer) -> dict[str, list[int]]:
    """Return the ids of the server's processes: the API server, the core, and the rest."""
    assert engine.pid is not None
    found: dict[str, list[int]] = {"api": [], "core": [], "rest": [engine.pid]}
    main = psutil.Process(engine.pid).children()
    for process in psutil.Process(engine.pid).children(recursive=True):
        line = " ".join(process.cmdline())
        found["api" if process in main else "core" if "EngineCore" in line else "rest"].append(process.pid)
    return found


def all_gone(processes: dict[str, list[int]]) -> bool:
    return all(gone(pid) for group in processes.values() for pid in group)


def test_answers_dies_and_answers_again(model: Path) -> None:
    log: list[str] = []

    async def run() -> None:
        engine = server(str(model), log)
        try:
            await check(engine)
        finally:
            await engine.stop()

    async def check(engine: VLLMServer) -> None:
        assert engine.max_in_flight == 16
        await engine.start()
        assert "Paris" in text_of(await engine.send(chat(FRANCE)))
        too_long = await engine.send(chat("word " * 2000))
        assert too_long.status == 400
        first = family(engine)
        assert len(first["api"]) == len(first["core"]) == 1

        endless = chat("Tell me a very long story.", max_tokens=900, ignore_eos=True)
        running = [asyncio.create_task(engine.send(endless)) for _ in range(4)]
        await engine.send(chat("Hello"))
        os.kill(first["api"][0], signal.SIGKILL)
        results = await asyncio.gather(*running, return_exceptions=True)
        assert [type(result) for result in results] == [EngineDied] * 4
        await asyncio.to_thread(wait_until, lambda: all_gone(first))

        await engine.start()
        assert "Paris" in text_of(await engine.send(chat(FRANCE)))
        second = family(engine)
        running = [asyncio.create_task(engine.send(endless)) for _ in range(4)]
        await engine.send(chat("Hello"))
        os.kill(second["core"][0], signal.SIGKILL)
        results = await asyncio.gather(*running, return_exceptions=True)
        assert [type(result) for result in results] == [EngineDied] * 4
        await engine.stop()
        assert all_gone(second)

    asyncio.run(run())
    assert any("vLLM" in line for line in log)


def test_setting_that_vllm_refuses_is_told_in_the_first_line(model: Path) -> None:
    async def run() -> str:
        with pytest.raises(EngineStartError) as error:
            await server(str(model), [], dtype="float3").start()
        return str(error.value)

    first_line = asyncio.run(run()).splitlines()[0]
    assert "float3" in first_line
