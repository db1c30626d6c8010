"""What every stage is given: the job, and the two views of storage it may use."""

from dataclasses import dataclass

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["Job", "JobFailed"]


class JobFailed(Exception):
    """A job cannot go on, and trying again would not help. The message is for its user."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its stages see it.

    Attributes:
        folder: Names of the job's objects.
        store: The job store: durable state.
        data: The storage a request may name: inputs and outputs.
    """

    folder: JobFolder
    store: ObjectStorage
    data: ObjectStorage
