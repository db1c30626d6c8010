"""From an item to its request, and from the engine's reply to its record."""

from dataclasses import dataclass
from typing import Self

import orjson

from batch_pipelines.api.items import ItemKind, extra_keys
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.protocol import EngineReply, EngineRequest
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.jobs.shard_files import ShardItem
from batch_pipelines.records import Record, build_record, error_record
from batch_pipelines.translation import COMPLETION_PATH, TranslationContext, translate

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
        context: The rest that is the same for all items.
    """

    kind: ItemKind | None
    served_model: str
    context: TranslationContext

    @classmethod
    def for_job(cls, request: CreateBatchCompletionsV2Request, manifest: Manifest) -> Self:
        """The answerer of a job."""
        config = request.engine_config
        return cls(
            kind=manifest.kind,
            served_model=config.served_model_name or config.model,
            context=TranslationContext(v1_header=manifest.v1_header),
        )

    @property
    def canary(self) -> EngineRequest:
        """A small request of the job's model that no sound engine dies of."""
        body = {"model": self.served_model, "prompt": "a", "max_tokens": 1}
        return EngineRequest(COMPLETION_PATH, orjson.dumps(body))

    def question(self, item: ShardItem) -> EngineRequest | Record:
        """What to ask the engine, or the record of an item that needs no engine: its error."""
        if item.error is not None or self.kind is None:
            return error_record(item.echo or {}, ItemError.model_validate(item.error))
        request = translate(self.kind, item.item, served_model=self.served_model, defaults=self.context)
        if isinstance(request, ItemError):
            return error_record(extra_keys(self.kind, item.item), request)
        return request

    def record(self, item: ShardItem, reply: EngineReply | None) -> Record:
        """The record of an item by the engine's reply; None stands for an item that kills engines."""
        if self.kind is None:
            raise ValueError("an item without a kind has no reply")
        if reply is None:
            return error_record(extra_keys(self.kind, item.item), _KILLS_ENGINE)
        return build_record(self.kind, item.item, reply)
