"""Stage 1: is the request one this deployment can serve?

The contract's own rules are in `batch_pipelines.api`; what belongs here are the deployment's: which
storage a request may name, what it may switch on, and whether its input and output can be reached.
Every error is reported at once, each by JSON pointer. Nothing here needs a GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.api.request import CreateBatchCompletionsV2Request, unknown_model_config_keys
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.stages.job import Job
from batch_pipelines.storage.errors import StorageError
from batch_pipelines.storage.locations import InvalidPath
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["Policy", "check_request", "read_request", "store_request"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a deployment lets requests do.

    Attributes:
        allow_trust_remote_code: Whether a checkpoint's own code may run.
        max_inline_bytes: Largest inline `content`, in bytes of JSON.
    """

    allow_trust_remote_code: bool
    max_inline_bytes: int


def check_request(
    job: Job,
    request: CreateBatchCompletionsV2Request,
    policy: Policy,
    *,
    check_engine: Callable[[CreateBatchCompletionsV2Request], list[str]],
) -> list[str]:
    """Check a request that keeps the contract against this deployment.

    Args:
        job: The job.
        request: What it asks.
        policy: What requests may do.
        check_engine: Returns the engine's warnings, or raises `ValueError` for what it would refuse.

    Returns:
        Warnings: what was asked and has no effect.

    Raises:
        RequestInvalid: With every reason found.
    """
    unknown = unknown_model_config_keys(request)
    warnings = [f"model_config.{key} is unknown and has no effect" for key in unknown]
    errors = [
        *_policy_errors(request, policy),
        *_input_errors(job, request),
        *_output_errors(job, request),
        *_checkpoint_errors(job, request),
    ]
    try:
        warnings += check_engine(request)
    except ValueError as error:
        errors.append(FieldError("/model_config", str(error)))
    if errors:
        raise RequestInvalid(errors)
    return warnings


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


def _input_errors(job: Job, request: CreateBatchCompletionsV2Request) -> list[FieldError]:
    if request.input_data_path is None:
        return []
    return _path_errors(job, "/input_data_path", request.input_data_path, must_exist=True)


def _output_errors(job: Job, request: CreateBatchCompletionsV2Request) -> list[FieldError]:
    pointer = "/output_data_path"
    errors = _path_errors(job, pointer, request.output_data_path, must_exist=False)
    if errors:
        return errors
    output = job.data.check(request.output_data_path)
    if output.endswith("/"):
        return [FieldError(pointer, "names a folder; give the output file's name")]
    if request.input_data_path is not None and output == _normalized(job.data, request.input_data_path):
        return [FieldError(pointer, "is the input file; the output would replace it")]
    probe = f"{output}.{job.folder.job_id}.probe"
    try:
        job.data.write(probe, b"")
        job.data.delete(probe)
    except StorageError as error:
        return [FieldError(pointer, f"cannot be written: {error}")]
    return []


def _checkpoint_errors(job: Job, request: CreateBatchCompletionsV2Request) -> list[FieldError]:
    if request.engine_config.checkpoint_path is None:
        return []
    pointer = "/model_config/checkpoint_path"
    return _path_errors(job, pointer, request.engine_config.checkpoint_path, must_exist=False)


def _path_errors(job: Job, pointer: str, path: str, *, must_exist: bool) -> list[FieldError]:
    try:
        uri = job.data.check(path)
        if uri.startswith(f"{job.folder.store}/"):
            return [FieldError(pointer, "lies in the job store, which belongs to the deployment")]
        if must_exist:
            job.data.head(path)
    except (StorageError, InvalidPath) as error:
        return [FieldError(pointer, str(error))]
    return []


def _normalized(data: ObjectStorage, path: str) -> str | None:
    try:
        return data.normalize(path)
    except InvalidPath:
        return None
