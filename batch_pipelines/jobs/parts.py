"""Parts: the records of one shard, committed once.

A part is one object: a record a line, in input order, then a footer line with the counts and the
failures. It is created if absent, so the first commit of a shard wins and a second, of a stray
or a duplicate worker, changes nothing. Choosing which shard to work on is in `claims`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import Manifest, ShardEntry
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["ItemFailure", "Part", "PartDamaged", "PartFooter", "commit_part", "committed_shards", "read_part"]


class PartDamaged(Exception):
    """A committed part is not what its shard calls for."""


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """A failed item, for the errors file.

    Attributes:
        index: Place in the input, from 0.
        line: Line of the input on which the item starts, from 1.
        error: The `error` object of its record.
    """

    index: int
    line: int
    error: dict[str, object]


@dataclass(frozen=True, slots=True)
class PartFooter:
    """Counts of a part.

    Attributes:
        shard: Id of the shard.
        shard_sha256: Of the shard file the records were made from.
        items: Records in the part.
        prompt_tokens: Tokens read, over all items.
        completion_tokens: Tokens written, over all items.
        seconds: From the shard's first item sent to its commit.
        worker: Who computed it.
        failures: Its failed items, in order.
    """

    shard: int
    shard_sha256: str
    items: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    worker: str
    failures: tuple[ItemFailure, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part as read: its records, each with its newline, and its footer."""

    records: bytes
    footer: PartFooter


def commit_part(
    storage: ObjectStorage, folder: JobFolder, fingerprint: str, records: Sequence[bytes], footer: PartFooter
) -> bool:
    """Commit a shard's records.

    A part that a crash left empty would stand in the way of every later commit: it is removed first.

    Returns:
        Whether this commit is the one that counts; False when the shard was committed before.
    """
    body = b"\n".join([*records, orjson.dumps(footer)]) + b"\n"
    uri = folder.part(fingerprint, footer.shard)
    if storage.create(uri, body):
        return True
    if storage.head(uri).size:
        return False
    storage.delete(uri)
    return storage.create(uri, body)


def committed_shards(storage: ObjectStorage, folder: JobFolder, fingerprint: str) -> set[int]:
    """Ids of the shards that have a part; an empty object, which a crash can leave behind, is none."""
    return {shard_id_of(info.uri) for info in storage.list(folder.parts(fingerprint)) if info.size}


def shard_id_of(uri: str) -> int:
    """Id of the shard that a shard's, a part's or a claim's URI names."""
    return int(uri.rsplit("/", 1)[1].split(".", 1)[0])


def read_part(storage: ObjectStorage, folder: JobFolder, manifest: Manifest, shard: ShardEntry) -> Part:
    """Read a committed part and check it against its shard.

    Raises:
        ObjectNotFound: The shard is not committed.
        PartDamaged: The part was made from other items, or does not hold one record an item.
    """
    uri = folder.part(manifest.fingerprint, shard.id)
    data = storage.read(uri)
    cut = data.rfind(b"\n", 0, len(data) - 1) + 1
    try:
        footer = _footer(data[cut:])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise PartDamaged(f"{uri}: no footer: {error}") from error
    records = data[:cut]
    if footer.shard != shard.id or footer.shard_sha256 != shard.sha256:
        raise PartDamaged(f"{uri}: made from another shard than the manifest's")
    found = records.count(b"\n")
    if not found == footer.items == shard.items:
        raise PartDamaged(
            f"{uri}: {found} records, footer says {footer.items}, the shard has {shard.items} items"
        )
    return Part(records, footer)


def _footer(line: bytes) -> PartFooter:
    fields = orjson.loads(line)
    failures = tuple(ItemFailure(**failure) for failure in fields.pop("failures"))
    return PartFooter(**fields, failures=failures)
