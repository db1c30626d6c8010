"""One engine, warm for a whole module, and the records of items it is asked for one by one."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import EngineSpec
from batch_pipelines.engines.vllm_server import VLLMServer
from batch_pipelines.feeding.answer import Answerer
from batch_pipelines.jobs.shard_files import ShardItem
from batch_pipelines.tool_use.execution import RunCode
from batch_pipelines.tool_use.loop import ToolLoopSettings

__all__ = ["Answers", "engine_answers"]


class Answers:
    """Asks a running engine as a replica does.

    Attributes:
        server: The engine.
        sent: How many requests it got.
        replies: What it answered last, a body for each request.
    """

    def __init__(self, server: VLLMServer, model: str, runner: asyncio.Runner) -> None:
        self.server = server
        self.sent = 0
        self.replies: list[dict[str, Any]] = []
        self._model = model
        self._runner = runner
        self._indexes = itertools.count()

    def record(
        self,
        kind: ItemKind,
        item: Any,
        header: dict[str, Any] | None = None,
        run_code: RunCode | None = None,
    ) -> dict[str, Any]:
        """The record of one item, good or not."""
        (record,) = self.records(kind, [item], header, run_code)
        return record

    def records(
        self,
        kind: ItemKind,
        items: list[Any],
        header: dict[str, Any] | None = None,
        run_code: RunCode | None = None,
    ) -> list[dict[str, Any]]:
        """The records of several items, asked for at once."""
        self.replies = []
        tool = ToolLoopSettings() if run_code is not None else None
        answerer = Answerer(kind, self._model, header, tool, run_code)

        async def ask(request: Any) -> Any:
            self.sent += 1
            reply = await self.server.send(request)
            self.replies.append(orjson.loads(reply.body))
            return reply

        async def all_of_them() -> list[dict[str, Any]]:
            shard = [ShardItem(index=next(self._indexes), line=0, item=item) for item in items]
            records = await asyncio.gather(*(answerer.answer(item, ask) for item in shard))
            return [orjson.loads(record.data) for record in records]

        return self._runner.run(all_of_them())

    def chat(self, text: str = "What is the capital of Japan?", **fields: Any) -> dict[str, Any]:
        """The answer to a chat of one message, or to the `messages` given; it must be a good one."""
        messages = [{"role": "user", "content": text}]
        return self._good("chat", {"messages": messages, "temperature": 0, "max_tokens": 24, **fields})

    def completion(self, prompt: Any = "The capital of Japan is", **fields: Any) -> dict[str, Any]:
        """The answer to a completion; it must be a good one."""
        return self._good("completion", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields})

    def _good(self, kind: ItemKind, item: dict[str, Any]) -> dict[str, Any]:
        record = self.record(kind, item)
        assert "error" not in record, record["error"]
        return record


@contextmanager
def engine_answers(model: Path, name: str, needs: EngineNeeds, **model_config: Any) -> Iterator[Answers]:
    """A running vLLM server and what asks it."""
    config = BatchCompletionsModelConfig.model_validate({"model": name, "max_num_seqs": 16, **model_config})
    log: list[str] = []
    spec = EngineSpec(
        str(model),
        name,
        config,
        defaults={"enforce_eager": True, "max_model_len": 1024},
        needs=needs,
        environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
        log=log.append,
    )
    with asyncio.Runner() as runner:
        server = VLLMServer(spec)
        try:
            runner.run(server.start())
            yield Answers(server, name, runner)
        finally:
            runner.run(server.stop())
