"""The front door: what Dagster loads.

`build_defs` makes the definitions for any settings, so that tests and other deployments can have
their own; `defs` is made from the environment.
"""

from typing import Any

import dagster as dg

from batch_pipelines.assets import batch_completions
from batch_pipelines.executors import local_executor
from batch_pipelines.run_config import JOB, JOB_TAGS
from batch_pipelines.settings import Settings
from resources.engine import EngineResource, FakeEngineResource, VLLMResource
from resources.job_store import JobStoreResource
from resources.step_values import StepValues

__all__ = ["build_defs", "defs"]

VLLM_VERSION = "0.32.0"
"""The engine all images of a deployment bring; `pyproject.toml` and `deploy/` pin the same."""


def build_defs(settings: Settings) -> dg.Definitions:
    """The definitions of a deployment with these settings."""
    job = dg.define_asset_job(
        JOB,
        selection=[batch_completions],
        tags=JOB_TAGS | {"dagster/max_retries": str(settings.max_run_retries)},
        description="Runs one batch-completions request; the launch config holds the request's own JSON.",
    )
    return dg.Definitions(
        assets=[batch_completions],
        jobs=[job],
        executor=local_executor(settings.max_local_replicas),
        resources=_resources(settings),
    )


def _resources(settings: Settings) -> dict[str, Any]:
    engine: EngineResource
    if settings.engine == "fake":
        name = "fake"
        engine = FakeEngineResource(
            delay_sec=settings.fake_delay_sec,
            max_in_flight=settings.fake_max_in_flight,
            journal=str(settings.fake_journal) if settings.fake_journal else None,
        )
    else:
        name = f"vllm=={VLLM_VERSION}"
        engine = VLLMResource(
            models_dir=str(settings.models),
            engine_args=settings.engine_args,
            environment=settings.engine_env,
            start_timeout_sec=settings.engine_start_timeout_sec,
        )
    store = JobStoreResource(
        store=settings.job_store,
        roots=settings.request_roots,
        engine=name,
        engine_args=settings.engine_args,
        allow_trust_remote_code=settings.allow_trust_remote_code,
        max_inline_bytes=settings.max_inline_bytes,
        max_item_bytes=settings.max_item_bytes,
        shard_max_items=settings.shard_max_items,
        shard_max_bytes=settings.shard_max_bytes,
        heartbeat_sec=settings.heartbeat_sec,
        claim_ttl_sec=settings.claim_ttl_sec,
    )
    return {"job_store": store, "engine": engine, "io_manager": StepValues(store=settings.job_store)}


defs = build_defs(Settings())
