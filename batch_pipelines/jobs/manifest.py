"""The manifest: which shards a job has, and what they were made from.

The manifest is the plan a run follows and the merge checks against. Reading and writing the shard
files is the sharding stage's work.
"""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engines.needs import NO_NEEDS, EngineNeeds
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["InputSource", "Manifest", "ShardEntry", "read_manifest", "write_manifest"]


class ShardEntry(BaseModel):
    """A shard: a run of consecutive items, and the unit of claim, commit and retry."""

    model_config = ConfigDict(frozen=True)

    id: int
    first_index: int = Field(description="Index of its first item in the input, from 0.")
    items: int
    invalid: int = Field(description="Items that get an error record without reaching the engine.")
    estimated_tokens: int
    sha256: str = Field(description="Of the shard file.")


class InputSource(BaseModel):
    """What the shards were made from, so that an unchanged input is not read twice.

    Attributes:
        uri: The input file; None for inline content.
        size: Bytes; of inline content, of its JSON.
        etag: The store's, where it gives one.
        last_modified: By the store's clock.
    """

    model_config = ConfigDict(frozen=True)

    uri: str | None
    size: int
    etag: str | None = None
    last_modified: datetime | None = None


class Manifest(BaseModel):
    """The plan of a job, complete once written."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    job_id: str
    fingerprint: str = Field(description="Of everything that changes results: see `fingerprint`.")
    request_digest: str = Field(description="Of the request it was made for.")
    settings_digest: str = Field(description="The fingerprint's part that does not depend on the input.")
    kind: ItemKind | None = Field(description="The one kind all items have; None if none is valid.")
    v1_header: dict[str, Any] | None = Field(description="The fields beside `prompts` of a V1 input.")
    source: InputSource
    items: int
    invalid: int
    estimated_tokens: int
    needs: EngineNeeds = Field(default=NO_NEEDS, description="What the items ask of the engine's set-up.")
    warnings: tuple[str, ...] = Field(default=(), description="What items set without effect.")
    shards: tuple[ShardEntry, ...]
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


def read_manifest(storage: ObjectStorage, folder: JobFolder) -> Manifest | None:
    """The job's manifest, or None if the input was not sharded yet."""
    try:
        return Manifest.model_validate_json(storage.read(folder.manifest))
    except ObjectNotFound:
        return None


def write_manifest(storage: ObjectStorage, folder: JobFolder, manifest: Manifest) -> None:
    """Publish the manifest, in one piece."""
    storage.write(folder.manifest, manifest.model_dump_json().encode())
