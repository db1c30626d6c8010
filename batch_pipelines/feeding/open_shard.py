"""A shard being worked on: which of its items have a record, and what they add up to."""

import time
from collections.abc import Sequence

from batch_pipelines.jobs.manifest import ShardEntry
from batch_pipelines.jobs.parts import ItemFailure, PartFooter
from batch_pipelines.jobs.shard_files import ShardItem
from batch_pipelines.records import Record

__all__ = ["OpenShard"]


class OpenShard:
    """Collects a shard's records, which arrive in any order.

    Attributes:
        entry: The shard.
        items: Its items; None in the place of those that have a record.
        done: Items that have a record.
        size: Bytes of the records.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
    """

    def __init__(self, entry: ShardEntry, items: Sequence[ShardItem]) -> None:
        """See the class."""
        self.entry = entry
        self.items: list[ShardItem | None] = list(items)
        self.done = 0
        self._records: list[bytes] = [b""] * len(items)
        self._failures: list[ItemFailure] = []
        self.size = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._started = time.monotonic()

    def put(self, position: int, record: Record) -> bool:
        """Put the record of the item at `position`; returns whether it was the last one missing."""
        item = self.items[position]
        if item is None:
            raise ValueError(f"position {position} of shard {self.entry.id} has a record already")
        self.items[position] = None  # its input is not needed any more
        self._records[position] = record.data
        self.size += len(record.data)
        self.prompt_tokens += record.prompt_tokens
        self.completion_tokens += record.completion_tokens
        if record.error is not None:
            self._failures.append(ItemFailure(item.index, item.line, record.error.model_dump()))
        self.done += 1
        return self.done == len(self.items)

    @property
    def failed(self) -> int:
        """Items with an error record."""
        return len(self._failures)

    @property
    def records(self) -> list[bytes]:
        """The records, in order."""
        return self._records

    def footer(self, worker: str) -> PartFooter:
        """What the part's footer says."""
        return PartFooter(
            shard=self.entry.id,
            shard_sha256=self.entry.sha256,
            items=self.done,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            seconds=round(time.monotonic() - self._started, 3),
            worker=worker,
            failures=tuple(sorted(self._failures, key=lambda failure: failure.index)),
        )
