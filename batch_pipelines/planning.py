"""What a request would take and how it would fare, told without running it.

A plan reads what a job would read, checks what a job would check, and writes nothing; no Dagster is asked.
How it is shown is the command line's matter. Memory is bounded, whatever the input's size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.choose import Hardware, HardwareInvalid, infer_hardware
from batch_pipelines.hardware.gpus import HardwareTable
from batch_pipelines.inputs.reader import InputError, InputStream, open_input
from batch_pipelines.jobs.folder import JobFolder, mint_job_id
from batch_pipelines.models.checkpoint_facts import CheckpointFacts
from batch_pipelines.models.errors import ModelUnavailable
from batch_pipelines.preflight.protocol import ModelUnfit, NoPreflight, Preflight
from batch_pipelines.stages.count import ItemCount, count_items
from batch_pipelines.stages.inline import inline_input
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.judge import item_check, told
from batch_pipelines.stages.validate import EngineFindings, Policy, check_request
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage
from batch_pipelines.translation.survey import Survey

__all__ = ["Deployment", "ModelSeen", "Plan", "plan_request"]


_MODEL_PATHS: Final = frozenset({"/model_config/checkpoint_path", "/model_config/tokenizer"})


@dataclass(frozen=True, slots=True)
class ModelSeen:
    """What a look at the request's model showed.

    Attributes:
        source: Where it would be loaded from, for people.
        facts: What its files tell; None if there are none to read.
    """

    source: str
    facts: CheckpointFacts | None


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a plan must know of the deployment it is for.

    Attributes:
        store: URI of the job store; only its address matters.
        roots: Storage prefixes that requests may name.
        policy: What requests may do.
        max_item_bytes: Largest item.
        table: GPU types and nodes.
        gpus_available: Whether there are any.
        engine_args: Engine arguments for what requests leave unset.
    """

    store: str
    roots: tuple[str, ...]
    policy: Policy
    max_item_bytes: int
    table: HardwareTable
    gpus_available: bool
    engine_args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a request would fare.

    Attributes:
        request: What is asked.
        model: What is known of its model; None if it cannot be had.
        hardware: Of one replica; None if none fits.
        items: What is in the input; None if it cannot be read.
        warnings: What has no effect, or may surprise.
        errors: Why the request would be refused as a whole.
    """

    request: CreateBatchCompletionsV2Request
    model: ModelSeen | None
    hardware: Hardware | None
    items: ItemCount | None
    warnings: tuple[str, ...]
    errors: tuple[FieldError, ...]

    @property
    def pods(self) -> int:
        """Pods of all replicas together, one for each node of each."""
        return self.request.replicas * (self.hardware.nodes_per_worker if self.hardware else 1)

    @property
    def total_gpus(self) -> int:
        """GPUs of all pods together."""
        return self.pods * (self.hardware.gpus if self.hardware else 0)


def plan_request(
    request: CreateBatchCompletionsV2Request,
    deployment: Deployment,
    *,
    look: Callable[[CreateBatchCompletionsV2Request], ModelSeen],
    check_engine: Callable[[CreateBatchCompletionsV2Request], EngineFindings],
    open_preflight: Callable[[CreateBatchCompletionsV2Request], Preflight],
) -> Plan:
    """Check a request as a job would, and choose its hardware.

    Args:
        request: A request that keeps the contract, its paths absolute.
        deployment: What it is for.
        look: Finds the request's model; raises `ValueError` if that cannot be.
        check_engine: Asks the engine.
        open_preflight: Makes what checks items against the model; not called if there is none.

    Raises:
        StorageError: A store cannot be asked; another attempt may succeed.
    """
    job = Job(
        folder=JobFolder(deployment.store, mint_job_id()),
        store=ObjectStorage(roots=[deployment.store]),
        data=ObjectStorage(roots=deployment.roots),
    )
    errors: list[FieldError] = []
    warnings: list[str] = []
    try:
        warnings += check_request(
            job, request, deployment.policy, check_engine=check_engine, probe_output=False
        )
    except RequestInvalid as invalid:
        errors += invalid.errors
    model = hardware = None
    try:
        model = look(request) if _MODEL_PATHS.isdisjoint(error.pointer for error in errors) else None
        hardware = infer_hardware(
            request,
            model.facts if model is not None else None,
            deployment.table,
            gpus_available=deployment.gpus_available or bool(request.gpus or request.gpu_type),
            engine_defaults=deployment.engine_args,
        )
    except HardwareInvalid as invalid:
        if deployment.policy.enforces_hardware:
            errors += invalid.errors
        else:
            warnings += [f"{error}; this deployment does not look at it" for error in invalid.errors]
    except ValueError as error:
        named = "checkpoint_path" if request.engine_config.checkpoint_path else "model"
        errors.append(FieldError(f"/model_config/{named}", str(error)))
    items = None
    if not any(error.pointer in ("/input_data_path", "/content") for error in errors):
        config = request.engine_config
        survey, tool = Survey((config.model, config.served_model_name)), request.tool_config is not None
        try:
            with _preflight(request, model, open_preflight, warnings) as preflight:
                items = count_items(
                    _stream(job, request, deployment),
                    item_check(survey, preflight, with_tool=tool),
                    preflight,
                )
                warnings += [*survey.warnings, *told(preflight.notes)]
        except ModelUnfit as error:
            errors.append(FieldError("/model_config", str(error)))
        except (InputError, ObjectNotFound) as error:
            errors.append(FieldError("/input_data_path", str(error)))
        except RequestInvalid as invalid:
            errors += [FieldError("/input_data_path", str(error)) for error in invalid.errors]
    return Plan(request, model, hardware, items, tuple(warnings), tuple(dict.fromkeys(errors)))


def _preflight(
    request: CreateBatchCompletionsV2Request,
    model: ModelSeen | None,
    open_preflight: Callable[[CreateBatchCompletionsV2Request], Preflight],
    warnings: list[str],
) -> Preflight:
    if model is None:
        return NoPreflight()
    try:
        return open_preflight(request)
    except ModelUnavailable as error:
        warnings.append(f"items are not checked against the model: {error}")
        return NoPreflight()


def _stream(job: Job, request: CreateBatchCompletionsV2Request, deployment: Deployment) -> InputStream:
    if request.input_data_path is None:
        return inline_input(request)
    return open_input(job.data, request.input_data_path, max_item_bytes=deployment.max_item_bytes)
