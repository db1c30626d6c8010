"""Stage 1: is the request one this deployment can serve?

The contract's own rules are in `batch_pipelines.api`; what belongs here are the deployment's: which
storage a request may name, what it may switch on, and whether its input and output can be reached.
Every error is reported at once, each by JSON pointer. Nothing here needs a GPU.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.api.priorities import priority_problem
from batch_pipelines.api.request import CreateBatchCompletionsV2Request, unknown_model_config_keys
from batch_pipelines.hardware.quantities import QuantityInvalid, parse_bytes, parse_cpus
from batch_pipelines.jobs.fingerprint import request_digest
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import read_manifest
from batch_pipelines.models.source import HUB_SCHEME
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.merge import errors_path
from batch_pipelines.storage.errors import ObjectNotFound, PathNotAllowed
from batch_pipelines.storage.locations import InvalidPath
from batch_pipelines.storage.object_storage import ObjectStorage
from batch_pipelines.tool_use.policy import tool_error

__all__ = [
    "EngineFindings",
    "Policy",
    "check_request",
    "model_path_errors",
    "read_request",
    "store_request",
]

_HARDWARE = ("cpus", "gpus", "memory", "storage", "gpu_type", "nodes_per_worker")
_LOOKS_LIKE_A_PATH = re.compile(r"[/.~]|[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a deployment lets requests do.

    Attributes:
        allow_trust_remote_code: Whether a checkpoint's own code may run.
        max_inline_bytes: Largest inline `content`, in bytes of JSON.
        protected_roots: Folders of the deployment's own, within the allowed ones, that no request may name.
        model_roots: Folders from which models are loaded, beside the allowed ones.
        allow_hub: Whether models and tokenizers may come from the model hub.
        allow_code_evaluator: Whether a model may run code, in a sandbox.
        code_evaluator_python: The Python that runs it; None for one that is found.
        enforces_hardware: Whether replicas get the hardware a request asks for.
        priorities: Names a request's `priority` may have, beside those that are always known.
    """

    allow_trust_remote_code: bool
    max_inline_bytes: int
    protected_roots: Sequence[str] = ()
    model_roots: Sequence[str] = ()
    allow_hub: bool = True
    allow_code_evaluator: bool = False
    code_evaluator_python: Path | None = None
    enforces_hardware: bool = False
    priorities: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EngineFindings:
    """What an engine has to say of a request.

    Attributes:
        errors: What it would refuse.
        warnings: What has no effect, or may surprise.
    """

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()


def check_request(
    job: Job,
    request: CreateBatchCompletionsV2Request,
    policy: Policy,
    *,
    check_engine: Callable[[CreateBatchCompletionsV2Request], EngineFindings],
    probe_output: bool = True,
) -> list[str]:
    """Check a request that keeps the contract against this deployment.

    Args:
        job: The job.
        request: What it asks.
        policy: What requests may do.
        check_engine: Asks the engine.
        probe_output: Whether to try to write beside the output.

    Returns:
        Warnings: what was asked and has no effect.

    Raises:
        RequestInvalid: With every reason found.
        StorageError: The storage cannot be asked; a new attempt may succeed.
    """
    unknown = unknown_model_config_keys(request)
    errors = [
        *_policy_errors(request, policy),
        *_quantity_errors(request),
        *_input_errors(job, request, policy),
        *_output_errors(job, request, policy, probe=probe_output),
    ]
    errors += (out_of_bounds := model_path_errors(job, request, policy))
    found = EngineFindings() if out_of_bounds else check_engine(request)
    errors += found.errors
    if errors:
        raise RequestInvalid(list(dict.fromkeys(errors)))
    return [
        *(f"model_config.{key} is unknown and has no effect" for key in unknown),
        *_hardware_warnings(request, policy),
        *found.warnings,
    ]


def store_request(store: ObjectStorage, folder: JobFolder, request: CreateBatchCompletionsV2Request) -> None:
    """Keep the request as accepted: just the fields that were sent."""
    body = request.model_dump_json(by_alias=True, exclude_unset=True).encode()
    store.write(folder.request, body)


def read_request(job: Job) -> CreateBatchCompletionsV2Request:
    """The request as accepted."""
    return CreateBatchCompletionsV2Request.model_validate_json(job.store.read(job.folder.request))


def _policy_errors(request: CreateBatchCompletionsV2Request, policy: Policy) -> list[FieldError]:
    errors = []
    if request.engine_config.trust_remote_code and not policy.allow_trust_remote_code:
        errors.append(
            FieldError("/model_config/trust_remote_code", "this deployment does not run checkpoints' code")
        )
    if request.tool_config is not None:
        error = tool_error(
            request.tool_config, allowed=policy.allow_code_evaluator, python=policy.code_evaluator_python
        )
        errors += [error] if error is not None else []
    if (problem := priority_problem(request.priority, policy.priorities)) is not None:
        errors.append(FieldError("/priority", problem))
    if request.content is not None:
        size = len(request.model_dump_json(by_alias=True, exclude_unset=True, include={"content"}))
        if size > policy.max_inline_bytes:
            errors.append(
                FieldError(
                    "/content",
                    f"inline content is {size:,} bytes, over this deployment's {policy.max_inline_bytes:,}; "
                    "put it in a file and name it in input_data_path",
                )
            )
    return errors


def _input_errors(job: Job, request: CreateBatchCompletionsV2Request, policy: Policy) -> list[FieldError]:
    if request.input_data_path is None:
        return []
    pointer = "/input_data_path"
    errors = _path_errors(job, pointer, request.input_data_path, policy)
    if errors or _is_sharded(job, request):
        return errors
    try:
        job.data.head(request.input_data_path)
    except ObjectNotFound as error:
        return [FieldError(pointer, str(error))]
    return []


def _is_sharded(job: Job, request: CreateBatchCompletionsV2Request) -> bool:
    """Whether an earlier run of this job has sharded the input, which may be gone by now."""
    known = read_manifest(job.store, job.folder)
    return known is not None and known.request_digest == request_digest(request)


def _quantity_errors(request: CreateBatchCompletionsV2Request) -> list[FieldError]:
    errors = []
    for name in ("cpus", "memory", "storage"):
        value = getattr(request, name)
        try:
            if value is not None:
                parse_cpus(value) if name == "cpus" else parse_bytes(value, name)
        except QuantityInvalid as error:
            errors.append(FieldError(f"/{name}", str(error).removeprefix(f"{name} ")))
    return errors


def _hardware_warnings(request: CreateBatchCompletionsV2Request, policy: Policy) -> list[str]:
    asked = [name for name in _HARDWARE if getattr(request, name) is not None]
    if policy.enforces_hardware or not asked:
        return []
    return [f"{', '.join(asked)}: no effect, replicas of this deployment run on its machine as it is"]


def _output_errors(
    job: Job, request: CreateBatchCompletionsV2Request, policy: Policy, *, probe: bool
) -> list[FieldError]:
    pointer = "/output_data_path"
    path = request.output_data_path
    errors = [
        *_path_errors(job, pointer, path, policy),
        *_path_errors(job, pointer, errors_path(path), policy),
    ]
    if errors:
        return errors[:1]
    output, place = job.data.check(path), _place(job.data, path)
    if path.endswith("/") or Path(place).is_dir():
        return [FieldError(pointer, "names a folder; give the output file's name")]
    if request.input_data_path is not None:
        given = _place(job.data, request.input_data_path)
        if given == place:
            return [FieldError(pointer, "is the input file; the output would replace it")]
        if given == _place(job.data, errors_path(path)):
            return [FieldError(pointer, "has the input file as its errors file, which would be replaced")]
    if probe:
        tried = f"{output}.{job.folder.job_id}.probe"
        job.data.write(tried, b"")
        job.data.delete(tried)
    return []


def model_path_errors(job: Job, request: CreateBatchCompletionsV2Request, policy: Policy) -> list[FieldError]:
    """Where a request names a model or tokenizer that it may not; asked before the model is looked at."""
    errors = []
    for name in ("checkpoint_path", "tokenizer"):
        path = getattr(request.engine_config, name)
        if path is None:
            continue
        if name == "checkpoint_path" and path.startswith(HUB_SCHEME):
            continue  # the hub is no storage; whether it may be used is told where the model is located
        if name == "tokenizer" and not _LOOKS_LIKE_A_PATH.match(path):
            if not policy.allow_hub:
                errors.append(FieldError("/model_config/tokenizer", "this deployment has no model hub"))
            continue
        if not _lies_in(policy.model_roots, path):
            errors += _path_errors(job, f"/model_config/{name}", path, policy)
    return errors


def _path_errors(job: Job, pointer: str, path: str, policy: Policy) -> list[FieldError]:
    try:
        job.data.check(path)
    except (PathNotAllowed, InvalidPath) as error:
        return [FieldError(pointer, str(error))]
    if _lies_in([job.folder.store, *policy.protected_roots], path):
        return [FieldError(pointer, "lies in a folder of the deployment's own, such as its job store")]
    return []


def _lies_in(roots: Sequence[str], path: str) -> bool:
    """Whether a path leads into one of these folders, links followed."""
    if not roots:
        return False
    try:
        ObjectStorage(roots=roots).check(path)
    except (PathNotAllowed, InvalidPath):
        return False
    return True


def _place(data: ObjectStorage, path: str) -> str:
    """Where a path leads, links followed; a local file as its path, anything else as its URI."""
    try:
        uri = data.normalize(path)
    except InvalidPath:
        return path
    return os.path.realpath(uri.removeprefix("file://")) if uri.startswith("file://") else uri
