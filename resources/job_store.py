"""The job store resource: where jobs keep durable state, and what the deployment sets for them."""

from datetime import timedelta
from functools import cached_property

import dagster as dg
from pydantic import Field

from batch_pipelines.feeding.replica import ReplicaTiming
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.shard import ShardLimits
from batch_pipelines.stages.validate import Policy
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["JobStoreResource"]


class JobStoreResource(dg.ConfigurableResource[ObjectStorage]):
    """Hands out a job's view of storage."""

    store: str = Field(description="URI of the job store, one folder a job.")
    roots: list[str] = Field(description="Storage prefixes that requests may read and write.")
    engine: str = Field(description="Name and version of the engine, a part of a job's fingerprint.")
    # A bare dict: Dagster refuses nulls in a dict[str, Any].
    engine_args: dict = Field(default={}, description="The deployment's engine arguments.")  # type: ignore[type-arg]
    allow_trust_remote_code: bool = Field(default=False, description="Whether checkpoints' own code may run.")
    max_inline_bytes: int = Field(description="Largest inline content, in bytes of JSON.")
    max_item_bytes: int = Field(description="Largest item, in bytes of JSON.")
    shard_max_items: int = Field(description="Most items in a shard.")
    shard_max_bytes: int = Field(description="Most bytes in a shard, but for a single larger item.")
    heartbeat_sec: float = Field(description="Seconds between a replica's progress reports.")
    claim_ttl_sec: float = Field(description="Seconds of silence after which a replica's claims are free.")

    @cached_property
    def _storage(self) -> tuple[ObjectStorage, ObjectStorage]:
        return ObjectStorage(roots=[self.store]), ObjectStorage(roots=self.roots)

    def job(self, job_id: str) -> Job:
        """The job's folder and the storage its stages may use."""
        store, data = self._storage
        return Job(
            folder=JobFolder(self.store, job_id),
            store=store,
            data=data,
            engine=self.engine,
            engine_args=self.engine_args,
        )

    @property
    def policy(self) -> Policy:
        """What requests may do."""
        return Policy(
            allow_trust_remote_code=self.allow_trust_remote_code, max_inline_bytes=self.max_inline_bytes
        )

    @property
    def shard_limits(self) -> ShardLimits:
        """Bounds on a shard and an item."""
        return ShardLimits(
            max_items=self.shard_max_items, max_bytes=self.shard_max_bytes, max_item_bytes=self.max_item_bytes
        )

    @property
    def timing(self) -> ReplicaTiming:
        """How often replicas report and look around."""
        return ReplicaTiming(
            heartbeat_sec=self.heartbeat_sec,
            claim_ttl=timedelta(seconds=self.claim_ttl_sec),
            poll_sec=min(2.0, self.heartbeat_sec),
        )
