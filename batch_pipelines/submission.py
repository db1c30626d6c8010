"""Submitting a job: one function behind every door."""

import contextlib
import os.path
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.errors import ControlError, DagsterError, DagsterUnreachable
from batch_pipelines.jobs.folder import JobFolder, mint_job_id
from batch_pipelines.run_config import run_config_for, run_tags_for
from batch_pipelines.settings import Settings
from batch_pipelines.stages.validate import store_request
from batch_pipelines.storage.errors import StorageError
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["resolve_paths", "submit"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def submit(
    request: bytes | str | Mapping[str, Any],
    *,
    settings: Settings,
    client: DagsterClient,
    base_dir: Path | None = None,
    fresh: bool = False,
) -> str:
    """Accept a request and launch its run.

    Args:
        request: The request's JSON, or the same parsed.
        settings: Of the deployment.
        client: Of its Dagster.
        base_dir: Absolute folder that the request's relative local paths start from; None leaves
            them to the deployment.
        fresh: Whether to leave alone what an unfinished job with the same work has committed.

    Returns:
        The job's id.

    Raises:
        RequestInvalid: With every error found.
        DagsterUnreachable: No answer. If it went missing at the launch itself, the message has the
            job's id, since the job may run.
        DagsterError: Dagster refused; no job is left behind.
        StorageError: The job store cannot be written.
    """
    accepted = parse_request(request)
    if base_dir is not None:
        accepted = resolve_paths(accepted, base_dir)
    job_id = mint_job_id()
    folder = JobFolder(settings.job_store, job_id)
    store = ObjectStorage(roots=[settings.job_store])
    client.version()  # before anything is written
    store_request(store, folder, accepted)
    tags = run_tags_for(accepted, job_id, max_retries=settings.max_run_retries, fresh=fresh)
    try:
        client.add_partition(job_id)
    except ControlError:
        _take_back(client, store, folder)
        raise
    try:
        client.launch(run_config_for(accepted), tags)
    except DagsterUnreachable as error:
        raise DagsterUnreachable(
            f"{error}; job {job_id} may have been launched: ask for its status before submitting again"
        ) from error
    except (DagsterError, RequestInvalid):
        _take_back(client, store, folder)
        raise
    return job_id


def resolve_paths(
    request: CreateBatchCompletionsV2Request, base_dir: Path
) -> CreateBatchCompletionsV2Request:
    """The request with its relative local paths made absolute; URIs stay as they are.

    Args:
        request: The request.
        base_dir: Absolute folder that they start from.
    """
    changes: dict[str, Any] = {}
    if request.input_data_path is not None:
        changes["input_data_path"] = _resolved(request.input_data_path, base_dir)
    changes["output_data_path"] = _resolved(request.output_data_path, base_dir)
    checkpoint = request.engine_config.checkpoint_path
    if checkpoint is not None:
        update = {"checkpoint_path": _resolved(checkpoint, base_dir)}
        changes["engine_config"] = request.engine_config.model_copy(update=update)
    return request.model_copy(update=changes)


def _resolved(path: str, base_dir: Path) -> str:
    # `~` is left for the storage to refuse: whose home it means depends on the machine.
    if not path or path != path.strip() or path.startswith(("/", "~")) or _SCHEME.match(path):
        return path
    return os.path.normpath(base_dir / path)


def _take_back(client: DagsterClient, store: ObjectStorage, folder: JobFolder) -> None:
    """Remove what was written for a job that was not launched; if that fails too, it does no harm."""
    with contextlib.suppress(ControlError):
        client.delete_partition(folder.job_id)
    with contextlib.suppress(StorageError):
        store.delete(folder.request)
