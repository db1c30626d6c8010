"""The job store resource: where jobs keep durable state, and what the deployment sets for them."""

from dataclasses import dataclass
from functools import cached_property

from batch_pipelines.feeding.replica import ReplicaTiming
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.shard import ShardLimits
from batch_pipelines.stages.validate import Policy
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["JobStore"]


@dataclass(frozen=True)
class JobStore:
    """Hands out a job's view of storage.

    Attributes:
        store: URI of the job store, one folder a job.
        roots: Storage prefixes that requests may read and write.
        policy: What requests may do.
        shard_limits: Bounds on a shard and an item.
        timing: How often replicas report and look around.
        decides_hardware: Whether the first step decides what replicas run on; with pods, their executor has.
    """

    store: str
    roots: tuple[str, ...]
    policy: Policy
    shard_limits: ShardLimits
    timing: ReplicaTiming
    decides_hardware: bool = False

    @cached_property
    def _storage(self) -> tuple[ObjectStorage, ObjectStorage]:
        return ObjectStorage(roots=[self.store]), ObjectStorage(roots=self.roots)

    def job(self, job_id: str) -> Job:
        """The job's folder and the storage its stages may use."""
        store, data = self._storage
        return Job(folder=JobFolder(self.store, job_id), store=store, data=data)
