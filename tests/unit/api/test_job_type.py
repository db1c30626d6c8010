"""What clients read of a job."""

from typing import Any

import pytest
from pydantic import ValidationError

from batch_pipelines.api.job import BatchCompletionsJob, JobStatus

JOB: dict[str, Any] = {
    "job_id": "01J",
    "output_data_path": "s3://b/o.json",
    "model_config": {"model": "m"},
    "status": "queued",
    "created_at": "2026-01-01T00:00:00+00:00",
    "expires_at": "2026-01-02T00:00:00+00:00",
    "completed_at": None,
    "metadata": None,
}


def test_job_comes_back_as_sent() -> None:
    job = BatchCompletionsJob.model_validate(JOB)
    assert job.status is JobStatus.QUEUED
    assert job.model_dump(mode="json", exclude_unset=True) == JOB


@pytest.mark.parametrize(
    "name", ["completed_at", "metadata", "status", "model_config", "created_at", "expires_at"]
)
def test_job_needs_its_required_keys(name: str) -> None:
    with pytest.raises(ValidationError):
        BatchCompletionsJob.model_validate({key: value for key, value in JOB.items() if key != name})


@pytest.mark.parametrize(
    "change", [{"status": "done"}, {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"n": 1}}]
)
def test_job_refuses_what_clients_would_refuse(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BatchCompletionsJob.model_validate({**JOB, **change})
