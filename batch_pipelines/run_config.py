"""From a request to what Dagster is told to launch: run config and tags. Pure functions.

Every way to submit uses these two, so a job is the same whichever door it came through.
"""

from typing import Any

from batch_pipelines.api.priorities import dagster_priority
from batch_pipelines.api.request import CreateBatchCompletionsV2Request

__all__ = [
    "ASSET",
    "FRESH_TAG",
    "GPU_TYPE_TAG",
    "INFERENCE_OP",
    "JOB",
    "JOB_TAGS",
    "LABEL_TAG_PREFIX",
    "MODEL_TAG",
    "PARTITION_TAG",
    "STORE_TAG",
    "request_of",
    "run_config_for",
    "run_tags_for",
]

ASSET = "batch_completions"
JOB = "batch_completions_job"
INFERENCE_OP = "run_inference"
"""The op that takes the request's hardware; a replica is a mapped step of it."""
PARTITION_TAG = "dagster/partition"
MODEL_TAG = "batch/model"
GPU_TYPE_TAG = "batch/gpu_type"
FRESH_TAG = "batch/fresh"
LABEL_TAG_PREFIX = "label/"
STORE_TAG = "batch/store"
"""Tag of the job that says where the deployment's job store is, for clients that are started elsewhere."""

_TAG_CHARACTERS = 250
_RUNTIME_GRACE_SEC = 120
"""Steps watch the time limit themselves and say so; Dagster's own watch is for a step that cannot."""

JOB_TAGS = {
    # Re-execution "from failure" forgets mapped steps that had not started, and the run succeeds
    # without them. All steps run again instead; what is committed is not computed again.
    "dagster/retry_strategy": "ALL_STEPS",
    # A run is started anew when its process was lost. A step that failed has had its own retries.
    "dagster/retry_on_asset_or_op_failure": "false",
}
"""Tags of every run of the job, also of one launched by hand."""


def run_config_for(request: CreateBatchCompletionsV2Request) -> dict[str, Any]:
    """The run config: the request's own JSON, at the asset's place."""
    return {"ops": {ASSET: {"config": request.model_dump(mode="json", by_alias=True, exclude_unset=True)}}}


def request_of(run_config: dict[str, Any]) -> dict[str, Any]:
    """The request's JSON in a run config made by `run_config_for`, or by hand in the launchpad."""
    config: dict[str, Any] = run_config["ops"][ASSET]["config"]
    return config


def run_tags_for(
    request: CreateBatchCompletionsV2Request, job_id: str, *, max_retries: int, fresh: bool = False
) -> dict[str, str]:
    """The run's tags: its partition, limits and what to filter by.

    Args:
        request: The job's request.
        job_id: The job's id.
        max_retries: How often the run is started anew after its process was lost.
        fresh: Whether to leave alone what an unfinished job with the same work has committed.
    """
    tags = {
        PARTITION_TAG: job_id,
        "dagster/max_retries": str(max_retries),
        "dagster/max_runtime": str(request.runtime_seconds + _RUNTIME_GRACE_SEC),
        MODEL_TAG: request.engine_config.model[:_TAG_CHARACTERS],
    }
    priority = dagster_priority(request.priority)
    if priority:
        tags["dagster/priority"] = str(priority)
    if request.gpu_type:
        tags[GPU_TYPE_TAG] = request.gpu_type
    if fresh:
        tags[FRESH_TAG] = "true"
    for label, value in (request.labels or {}).items():
        tags[f"{LABEL_TAG_PREFIX}{label}"[:_TAG_CHARACTERS]] = value[:_TAG_CHARACTERS]
    return tags
