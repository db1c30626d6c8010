"""Shard files: the items of one shard, a line each, with index and line of the input.

A valid item's JSON is carried verbatim. An item that did not validate is carried as its error,
with the keys its record will echo, so that every index of the input is in exactly one shard.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import ShardEntry
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["ShardDamaged", "ShardItem", "encode_invalid", "encode_valid", "read_shard"]


class ShardDamaged(Exception):
    """A shard file is not the one the manifest was made with."""


@dataclass(frozen=True, slots=True)
class ShardItem:
    """An item as a replica gets it: exactly one of `item` and `error` is set.

    Attributes:
        index: Place in the input, from 0.
        line: Line of the input on which it starts, from 1; 0 for inline content.
        item: The item's JSON; for a V1 input, one prompt.
        error: The `error` object of its record, if it did not validate.
        echo: Keys to echo in the record of an item that did not validate.
    """

    index: int
    line: int
    item: Any = None
    error: dict[str, Any] | None = None
    echo: dict[str, Any] | None = None


def encode_valid(index: int, line: int, item: bytes) -> bytes:
    """The line of a valid item, whose JSON is `item`, itself free of newlines."""
    return b'{"index":%d,"line":%d,"item":%b}\n' % (index, line, item)


def encode_invalid(index: int, line: int, error: Mapping[str, Any], echo: Mapping[str, Any]) -> bytes:
    """The line of an item that did not validate."""
    return orjson.dumps(
        {"index": index, "line": line, "error": error, "echo": echo}, option=orjson.OPT_APPEND_NEWLINE
    )


def read_shard(storage: ObjectStorage, folder: JobFolder, shard: ShardEntry) -> list[ShardItem]:
    """Read a shard's items, in order.

    Raises:
        ShardDamaged: The file is not what the manifest says.
    """
    uri = folder.shard(shard.id, shard.sha256)
    data = storage.read(uri)
    if hashlib.sha256(data).hexdigest() != shard.sha256:
        raise ShardDamaged(f"{uri} has changed since the manifest was written")
    return [ShardItem(**orjson.loads(line)) for line in data.split(b"\n")[:-1]]
