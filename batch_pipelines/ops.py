"""The four ops of a job. Each hands its stage what Dagster knows and reports what the stage found.

Work belongs in `batch_pipelines.stages`; what belongs here is how a stage's failures become
Dagster's, and which ones are worth another attempt.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.config_schema import config_shape
from batch_pipelines.engines.gang import NodeLost
from batch_pipelines.engines.protocol import EngineError
from batch_pipelines.feeding.answer import Answerer
from batch_pipelines.feeding.replica import Replica
from batch_pipelines.jobs.claims import Worker
from batch_pipelines.jobs.fingerprint import request_digest, settings_digest
from batch_pipelines.jobs.folder import InvalidJobId
from batch_pipelines.jobs.hardware import read_hardware, write_hardware
from batch_pipelines.jobs.manifest import Manifest, read_manifest
from batch_pipelines.jobs.parts import committed_shards
from batch_pipelines.kubernetes.rendezvous import gang_place
from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound, ModelUnavailable
from batch_pipelines.replica_tries import LOST_REPLICA, failures_noted, replica_key, why_given_up
from batch_pipelines.run_config import FRESH_TAG, INFERENCE_OP
from batch_pipelines.run_facts import deadline_of, earlier_unfinished_run, job_is_abandoned, run_is_over
from batch_pipelines.stages.adopt import adopt_parts, mark_unfinished, taken_from
from batch_pipelines.stages.infer import run_replica, stop_when
from batch_pipelines.stages.job import Job, JobFailed
from batch_pipelines.stages.merge import MergeIncomplete, Summary, merge_parts
from batch_pipelines.stages.preview import PreviewRow, preview
from batch_pipelines.stages.shard import shard_input
from batch_pipelines.stages.validate import check_request, read_request, store_request
from batch_pipelines.storage.errors import StorageError
from batch_pipelines.tool_use.execution import RunCode
from batch_pipelines.tool_use.sandbox import SandboxFailed
from batch_pipelines.tool_use.sandbox_check import SandboxUnavailable, open_sandbox
from resources.engines import Engines
from resources.job_store import JobStore

__all__ = ["merge_outputs", "run_inference", "shard_inputs", "validate_request"]

_LOST_STEP = dg.RetryPolicy(max_retries=2, delay=2, backoff=dg.Backoff.EXPONENTIAL)
"""For a step whose process or pod was lost, or that met a passing fault of storage."""


@dg.op(
    config_schema=config_shape(CreateBatchCompletionsV2Request),
    retry_policy=_LOST_STEP,
    description="Checks the whole request, reports every error at once, and keeps the request as accepted.",
)
def validate_request(
    context: dg.OpExecutionContext,
    job_store: dg.ResourceParam[JobStore],
    engines: dg.ResourceParam[Engines],
) -> dict[str, Any]:
    """Check the request and keep it."""
    job = _job(context, job_store)
    try:
        request = parse_request(context.op_config)
        _time_check(context, request)()
        warnings = check_request(job, request, job_store.policy, check_engine=engines.check)
    except RequestInvalid as invalid:
        raise dg.Failure(
            f"the request is invalid:\n{invalid}",
            metadata={error.pointer or "/": error.message for error in invalid.errors},
            allow_retries=False,
        ) from invalid
    except JobFailed as failure:
        raise dg.Failure(str(failure), allow_retries=False) from failure
    except StorageError as error:
        raise dg.Failure(f"the request's storage cannot be used: {error}") from error
    except ModelUnavailable as error:
        raise dg.Failure(f"the request's model cannot be looked at: {error}") from error
    store_request(job.store, job.folder, request)
    if job_store.decides_hardware:
        write_hardware(job.store, job.folder, context.run_id, engines.hardware_for(request))
    for warning in warnings:
        context.log.warning(warning)
    return {"warnings": warnings, "replicas": request.replicas}


@dg.op(
    out=dg.DynamicOut(dict),
    retry_policy=_LOST_STEP,
    description="Reads the input once, validates every item, writes shards, and asks for the replicas.",
)
def shard_inputs(
    context: dg.OpExecutionContext,
    job_store: dg.ResourceParam[JobStore],
    engines: dg.ResourceParam[Engines],
    validated: dict[str, Any],
) -> Iterator[dg.DynamicOutput[dict[str, Any]]]:
    """Shard the input; one output a replica."""
    job = _job(context, job_store)
    request = read_request(job)
    try:
        with engines.preflight(request) as preflight:
            manifest = shard_input(
                job,
                request,
                job_store.shard_limits,
                engine=engines.identity(request),
                preflight=preflight,
                check=_time_check(context, request),
            )
    except (JobFailed, ModelNotFound, CheckpointRefused) as failure:
        raise dg.Failure(str(failure), allow_retries=False) from failure
    except ModelUnavailable as error:
        raise dg.Failure(f"the request's model cannot be looked at: {error}") from error
    for warning in manifest.warnings:
        context.log.warning(warning)
    mark_unfinished(job, manifest)
    adopted = 0
    if context.run.tags.get(FRESH_TAG) != "true":
        adopted = adopt_parts(
            job, manifest, is_abandoned=lambda other: job_is_abandoned(context.instance, other)
        )
    left = len(manifest.shards) - len(committed_shards(job.store, job.folder, manifest.fingerprint))
    context.log.info(
        f"{manifest.items:,} items ({manifest.invalid:,} invalid) in {len(manifest.shards):,} shards, "
        f"{left:,} to compute; {adopted:,} taken over from an unfinished job with the same work"
    )
    replicas = min(validated["replicas"], left)
    for replica in range(replicas):
        yield dg.DynamicOutput({"replica": replica, "replicas": replicas}, mapping_key=replica_key(replica))


@dg.op(
    name=INFERENCE_OP,
    retry_policy=LOST_REPLICA,
    description="One replica: an engine on the request's GPUs, which pulls shards until all are committed.",
)
def run_inference(
    context: dg.OpExecutionContext,
    job_store: dg.ResourceParam[JobStore],
    engines: dg.ResourceParam[Engines],
    share: dict[str, int],
) -> dict[str, Any]:
    """Work on the job's shards with one engine.

    An engine that does not start, or keeps dying, ends this replica but not the job: the other
    replicas may still finish it, and the merge decides by what is committed.
    """
    job = _job(context, job_store)
    request, manifest = _plan(job)
    if len(committed_shards(job.store, job.folder, manifest.fingerprint)) == len(manifest.shards):
        return {"replica": share["replica"], "shards": 0}
    given_up = why_given_up(context, job, share["replica"])
    if given_up is not None:
        context.log.error(f"this replica gives up: {given_up}")
        return {"replica": share["replica"], "error": given_up}
    with failures_noted(context, job, share["replica"]):
        return _infer(context, job, request, manifest, job_store, engines, share)


def _infer(
    context: dg.OpExecutionContext,
    job: Job,
    request: CreateBatchCompletionsV2Request,
    manifest: Manifest,
    job_store: JobStore,
    engines: Engines,
    share: dict[str, int],
) -> dict[str, Any]:
    worker = Worker(context.run_id, share["replica"], context.retry_number)
    check = _time_check(context, request)
    hardware = read_hardware(job.store, job.folder, context.run_id)
    if hardware is None and job_store.policy.enforces_hardware:
        raise dg.Failure(
            "what the replicas of this run take was never decided: run all steps again", allow_retries=False
        )
    try:
        _check_engine(engines, request, manifest)
        run_code = _code_runner(request, job_store)
        with engines.ready(
            request,
            manifest.needs,
            hardware,
            check=check,
            log=_log_engine_line,
            gang=gang_place(job.store, job.folder, context.run_id, os.environ),
        ) as make_engine:
            result = run_replica(
                lambda: Replica(
                    storage=job.store,
                    folder=job.folder,
                    manifest=manifest,
                    worker=worker,
                    replicas=share["replicas"],
                    engine=make_engine(),
                    answerer=Answerer.for_job(request, manifest, run_code),
                    timing=job_store.timing,
                    on_event=context.log.info,
                ),
                check=check,
            )
    except JobFailed as failure:
        raise dg.Failure(str(failure), allow_retries=False) from failure
    except ModelUnavailable as error:
        raise dg.Failure(f"the request's model cannot be had: {error}") from error
    except NodeLost as lost:
        raise dg.Failure(f"a node of this replica's engine is lost: {lost}") from lost
    except (EngineError, ModelNotFound, CheckpointRefused, SandboxUnavailable, SandboxFailed) as error:
        context.log.error(f"this replica gives up: {error}")
        return {"replica": share["replica"], "error": str(error)}
    return dataclasses.asdict(result)


@dg.op(
    retry_policy=_LOST_STEP,
    description="Publishes the output in input order, complete or not at all, and its errors file.",
)
def merge_outputs(
    context: dg.OpExecutionContext,
    job_store: dg.ResourceParam[JobStore],
    validated: dict[str, Any],
    replicas: list[dict[str, Any]],
) -> dg.Output[dict[str, Any]]:
    """Publish the job's output."""
    job = _job(context, job_store)
    request, manifest = _plan(job)
    try:
        summary = merge_parts(
            job,
            manifest,
            request.output_data_path,
            run_id=context.run_id,
            warnings=[
                *validated["warnings"],
                *manifest.warnings,
                *_taken_over(job, manifest),
                *_restarts(replicas),
            ],
            check=_time_check(context, request),
        )
    except JobFailed as failure:
        raise dg.Failure(str(failure), allow_retries=False) from failure
    except MergeIncomplete as incomplete:
        reasons = [
            f"replica {result['replica']}: {result['error']}" for result in replicas if "error" in result
        ]
        raise dg.Failure("\n".join([*reasons, str(incomplete)]), allow_retries=False) from incomplete
    return dg.Output(
        summary.model_dump(mode="json"),
        metadata=_metadata(summary, preview(job.store, job.folder, manifest), replicas),
    )


def _restarts(replicas: list[dict[str, Any]]) -> list[str]:
    deaths = sum(result.get("engine_deaths", 0) for result in replicas)
    if not deaths:
        return []
    return [
        f"the engine died {deaths} time{'s' * (deaths != 1)} and was started anew; "
        "why is in the logs of the run_inference steps"
    ]


def _check_engine(engines: Engines, request: CreateBatchCompletionsV2Request, manifest: Manifest) -> None:
    """Two models must not answer one job: weights can be replaced, and a branch of the hub moves on."""
    now = settings_digest(request, engine=engines.identity(request), v1_header=manifest.v1_header)
    if now != manifest.settings_digest:
        raise JobFailed(
            "the model, or how its engine is set up, is not what it was when the items were sharded: "
            "run all steps again"
        )


def _code_runner(request: CreateBatchCompletionsV2Request, job_store: JobStore) -> RunCode | None:
    if request.tool_config is None:
        return None
    return open_sandbox(job_store.policy.code_evaluator_python).run


def _job(context: dg.OpExecutionContext, job_store: JobStore) -> Job:
    if not context.has_partition_key:
        raise dg.Failure(
            "launch the job for a partition of batch_requests: its key is the job's id", allow_retries=False
        )
    try:
        job = job_store.job(context.partition_key)
    except InvalidJobId as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    other = earlier_unfinished_run(context.instance, context.run)
    if other is not None:
        raise dg.Failure(f"run {other} of this job has not ended yet; cancel it first", allow_retries=False)
    return job


def _plan(job: Job) -> tuple[CreateBatchCompletionsV2Request, Manifest]:
    """The job's request and the plan made for it; never one of each of two launches."""
    request, manifest = read_request(job), read_manifest(job.store, job.folder)
    if manifest is None or manifest.request_digest != request_digest(request):
        raise dg.Failure(
            "the job's input was not sharded for the request it has now: run all its steps again",
            allow_retries=False,
        )
    return request, manifest


def _taken_over(job: Job, manifest: Manifest) -> list[str]:
    return [
        f"answers of job {other}, which asked for the same and did not complete, were taken over; "
        "`submit --fresh` computes all anew"
        for other in taken_from(job, manifest)
    ]


def _time_check(
    context: dg.OpExecutionContext, request: CreateBatchCompletionsV2Request
) -> Callable[[], None]:
    return stop_when(
        deadline=deadline_of(context.instance, context.run, request.runtime_seconds),
        is_over=lambda: run_is_over(context.instance, context.run_id),
    )


def _log_engine_line(line: str) -> None:
    """Into the step's own log, which Dagster keeps; not an event each."""
    print(line, file=sys.stderr, flush=True)


def _metadata(
    summary: Summary, rows: list[PreviewRow], replicas: list[dict[str, Any]]
) -> dict[str, dg.MetadataValue[Any]]:
    seconds = max((result.get("seconds", 0.0) for result in replicas), default=0.0)
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "items": dg.MetadataValue.int(summary.total),
        "succeeded": dg.MetadataValue.int(summary.succeeded),
        "failed": dg.MetadataValue.int(summary.failed),
        "prompt_tokens": dg.MetadataValue.int(summary.prompt_tokens),
        "completion_tokens": dg.MetadataValue.int(summary.completion_tokens),
        "output": dg.MetadataValue.path(summary.output),
        "shards": dg.MetadataValue.int(summary.shards),
        "preview": dg.MetadataValue.table(
            records=[dg.TableRecord(dataclasses.asdict(row)) for row in rows],
            schema=dg.TableSchema(
                columns=[
                    dg.TableColumn("index", "int"),
                    dg.TableColumn("prompt", "string"),
                    dg.TableColumn("answer", "string"),
                ]
            ),
        ),
    }
    if summary.errors is not None:
        metadata["errors"] = dg.MetadataValue.path(summary.errors)
    if seconds:
        tokens = sum(result.get("completion_tokens", 0) for result in replicas)
        metadata["tokens_per_second"] = dg.MetadataValue.float(round(tokens / seconds, 1))
    if summary.warnings:
        metadata["warnings"] = dg.MetadataValue.json(summary.warnings)
    return metadata
