"""How steps become processes. The request decides how many replicas; the executor, how many at once."""

from collections.abc import Callable
from typing import Any

import dagster as dg

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.settings import Settings
from batch_pipelines.stages.job import Job

__all__ = ["executor_of", "local_executor"]


def executor_of(
    settings: Settings,
    job: Callable[[str], Job],
    hardware_for: Callable[[Job, CreateBatchCompletionsV2Request], Hardware],
) -> dg.ExecutorDefinition:
    """The executor of a deployment.

    Args:
        settings: Of the deployment.
        job: A job's folder and storage, by its id.
        hardware_for: Decides what a replica of a job's request runs on.
    """
    if settings.executor == "local":
        return local_executor(settings.max_local_replicas)
    # Only deployments on a cluster have what this needs installed.
    from batch_pipelines.kubernetes.deployment import request_pods
    from batch_pipelines.kubernetes.executor import kubernetes_executor

    return kubernetes_executor(request_pods(settings, job, hardware_for))


def local_executor(max_replicas: int) -> dg.ExecutorDefinition:
    """Steps as processes on this machine, at most `max_replicas` at a time.

    A job with more replicas than that still completes: the ones that run take all the shards.
    """

    @dg.configured(dg.multiprocess_executor, config_schema={})
    def batch_local_executor(_config: dict[str, Any]) -> dict[str, Any]:
        return {"max_concurrent": max_replicas}

    return batch_local_executor
