"""From an item to its record: asking the engine what it takes, as often as it takes."""

from dataclasses import dataclass
from typing import Any, Self

import orjson

from batch_pipelines.api.items import ItemKind, extra_keys
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.protocol import EngineReply, EngineRequest
from batch_pipelines.feeding.exchange import Ask
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.jobs.shard_files import ShardItem
from batch_pipelines.records import Record, build_record, error_record
from batch_pipelines.tool_use.execution import RunCode
from batch_pipelines.tool_use.loop import ToolLoopSettings, answer_with_tool
from batch_pipelines.translation.draft import Item
from batch_pipelines.translation.translate import COMPLETION_PATH, translate

__all__ = ["Answerer"]

_KILLS_ENGINE = ItemError(
    message="the engine died each time it was given this item, the last time with no other item",
    type="EngineDied",
    param=None,
    code=500,
)


@dataclass(frozen=True, slots=True)
class Answerer:
    """Knows what all items of a job have in common.

    Attributes:
        kind: What the items are; None if not one is valid.
        served_model: The name the engine knows the model by.
        v1_header: The fields beside `prompts` of V1 content.
        tool: How the model may run code between rounds of generation; None if it may not.
        run_code: Runs it.
    """

    kind: ItemKind | None
    served_model: str
    v1_header: Item | None
    tool: ToolLoopSettings | None = None
    run_code: RunCode | None = None

    @classmethod
    def for_job(
        cls,
        request: CreateBatchCompletionsV2Request,
        manifest: Manifest,
        run_code: RunCode | None = None,
    ) -> Self:
        """The answerer of a job.

        Args:
            request: What the job asks.
            manifest: Its plan.
            run_code: Runs the model's code; needed where the request has a `tool_config`.
        """
        if request.tool_config is not None and run_code is None:
            raise ValueError("a request with tool_config needs something that runs code")
        config = request.engine_config
        return cls(
            kind=manifest.kind,
            served_model=config.served_model_name or config.model,
            v1_header=manifest.v1_header,
            tool=ToolLoopSettings.from_config(request.tool_config) if request.tool_config else None,
            run_code=run_code,
        )

    @property
    def canary(self) -> EngineRequest:
        """A small request of the job's model that no sound engine dies of."""
        body = {"model": self.served_model, "prompt": "a", "max_tokens": 1}
        return EngineRequest(COMPLETION_PATH, orjson.dumps(body))

    async def answer(self, item: ShardItem, ask: Ask) -> Record:
        """The record of one item, whatever it takes to get it.

        Args:
            item: The item.
            ask: Sends a request to the engine.
        """
        if item.error is not None or self.kind is None:
            return error_record(item.echo or {}, ItemError.model_validate(item.error))
        translated = translate(self.kind, item.item, served_model=self.served_model, v1_header=self.v1_header)
        if isinstance(translated, ItemError):
            return error_record(extra_keys(self.kind, item.item), translated)
        reply, error = await self._reply(item.item, translated.request, ask)
        if error is not None:
            return error_record(extra_keys(self.kind, item.item), error)
        if reply is None:
            return error_record(extra_keys(self.kind, item.item), _KILLS_ENGINE)
        return build_record(self.kind, item.item, reply, translated.rewrites)

    async def _reply(
        self, item: Any, request: EngineRequest, ask: Ask
    ) -> tuple[EngineReply | None, ItemError | None]:
        if self.tool is None or self.run_code is None or self.kind is None:
            return await ask(request), None
        outcome = await answer_with_tool(self.kind, item, request, self.tool, ask, self.run_code)
        return outcome.reply, outcome.error
