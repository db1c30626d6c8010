"""The front door: what Dagster loads.

`build_defs` makes the definitions for any settings, so that tests and other deployments can have
their own; `defs` is made from the environment.
"""

import dagster as dg

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.assets import batch_completions
from batch_pipelines.executors import executor_of
from batch_pipelines.feeding.replica import ReplicaTiming
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.run_config import JOB, JOB_TAGS, STORE_TAG
from batch_pipelines.sensors import sensors_of
from batch_pipelines.settings import Settings
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.shard import ShardLimits
from batch_pipelines.stages.validate import model_path_errors
from resources.deployment import engines_of, policy_of
from resources.job_store import JobStore
from resources.step_values import StepValues

__all__ = ["build_defs", "defs"]


def build_defs(settings: Settings) -> dg.Definitions:
    """The definitions of a deployment with these settings."""
    job = dg.define_asset_job(
        JOB,
        selection=[batch_completions],
        tags=JOB_TAGS | {"dagster/max_retries": str(settings.max_run_retries), STORE_TAG: settings.job_store},
        description="Runs one batch-completions request; the launch config holds the request's own JSON.",
    )
    engines, job_store = engines_of(settings), _job_store(settings)

    def hardware_for(job: Job, request: CreateBatchCompletionsV2Request) -> Hardware:
        errors = model_path_errors(job, request, job_store.policy)
        if errors:
            raise RequestInvalid(errors)
        return engines.hardware_for(request)

    return dg.Definitions(
        assets=[batch_completions],
        jobs=[job],
        executor=executor_of(settings, job_store.job, hardware_for),
        sensors=sensors_of(settings, job_store.job),
        resources={
            "job_store": _fixed(job_store),
            "engines": _fixed(engines),
            "io_manager": _fixed(StepValues(settings.job_store), dg.IOManagerDefinition),
        },
    )


def _job_store(settings: Settings) -> JobStore:
    return JobStore(
        store=settings.job_store,
        roots=tuple(settings.request_roots),
        policy=policy_of(settings),
        shard_limits=ShardLimits(
            max_items=settings.shard_max_items,
            max_bytes=settings.shard_max_bytes,
            max_item_bytes=settings.max_item_bytes,
        ),
        timing=ReplicaTiming(heartbeat_sec=settings.heartbeat_sec, claim_ttl=settings.claim_ttl),
        decides_hardware=settings.enforces_hardware and settings.executor == "local",
    )


def _fixed(value: object, kind: type[dg.ResourceDefinition] = dg.ResourceDefinition) -> dg.ResourceDefinition:
    """A resource that refuses launch config; a bare object would take any, and ignore it."""
    return kind(resource_fn=lambda _: value, config_schema={})


defs = build_defs(Settings())
