"""The first items of a job with their answers, short enough to show."""

from dataclasses import dataclass
from typing import Any

import orjson

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.jobs.parts import read_part
from batch_pipelines.jobs.shard_files import ShardItem, read_shard
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["PreviewRow", "preview"]

_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """An item and its answer, each cut to a few lines.

    Attributes:
        index: Place in the input, from 0.
        prompt: What was asked.
        answer: What came back, or the error's message.
    """

    index: int
    prompt: str
    answer: str


def preview(store: ObjectStorage, folder: JobFolder, manifest: Manifest, rows: int = 5) -> list[PreviewRow]:
    """The first items of a completed job."""
    if not manifest.shards:
        return []
    shard = manifest.shards[0]
    items = read_shard(store, folder, shard)[:rows]
    records = read_part(store, folder, manifest, shard).records.split(b"\n")
    return [
        PreviewRow(item.index, _short(_question(item)), _short(_answer(orjson.loads(record))))
        for item, record in zip(items, records, strict=False)
    ]


def _question(item: ShardItem) -> str:
    if isinstance(item.item, dict) and item.item.get("messages"):
        return _text(item.item["messages"][-1].get("content"))
    if isinstance(item.item, dict):
        return _text(item.item.get("prompt"))
    return _text(item.item) if item.item is not None else "(item did not validate)"


def _answer(record: dict[str, Any]) -> str:
    if "error" in record and isinstance(record["error"], dict):
        return f"error: {record['error'].get('message')}"
    if "choices" in record:
        choice = (record["choices"] or [{}])[0]
        return _text(
            (choice.get("message") or {}).get("content") if "message" in choice else choice.get("text")
        )
    return _text(record.get("text"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
