"""A job as clients see it."""

from enum import StrEnum

from pydantic import Field

from batch_pipelines.api.base import OpenModel
from batch_pipelines.api.model_config import BatchCompletionsModelConfig

__all__ = ["BatchCompletionsJob", "JobStatus"]


class JobStatus(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class BatchCompletionsJob(OpenModel):
    """A job: what was asked, where it stands, and the dates that matter."""

    job_id: str
    """The job's identifier."""
    input_data_path: str | None = None
    """URI of the items; null if they came with the request."""
    output_data_path: str
    """URI of the output file; it exists once the job is completed."""
    engine_config: BatchCompletionsModelConfig = Field(alias="model_config")
    """The model and how its engine was set up."""
    priority: str | None = None
    """How urgent the job is."""
    status: JobStatus
    """Where the job stands."""
    created_at: str
    """When the job was submitted, ISO 8601 in UTC."""
    expires_at: str
    """When the job is stopped if it still runs, ISO 8601 in UTC."""
    completed_at: str | None
    """When the job ended, ISO 8601 in UTC; null while it has not."""
    metadata: dict[str, str] | None
    """Labels, counts and warnings, as text."""
