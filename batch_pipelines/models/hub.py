"""A checkpoint on the model hub: which commit a revision is, what it holds, and how its files get here.

The token comes from the deployment's environment only, never from a request and never from a file of this
machine's user. The hub's library does the transfers, with its own retries; its checksums cover only some of
them, so every file is checked again here against what the hub says of it.

The library's texts hold signed links and its errors the request with the token: neither leaves this module.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import httpx2
from huggingface_hub import HfApi
from huggingface_hub import constants as hub_constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import logging as hub_logging

from batch_pipelines.models.checksums import checksum_of
from batch_pipelines.models.errors import ModelNotFound, ModelUnavailable
from batch_pipelines.models.file_choice import RemoteFile
from batch_pipelines.models.source import ModelSource
from batch_pipelines.models.transfer import Job, Transfer
from batch_pipelines.storage.locations import redact

__all__ = ["COMMIT", "Hub", "HubCheckpoint"]

COMMIT: Final = re.compile(r"[0-9a-f]{40}")
SCRATCH: Final = ".hub"
"""Folder beside the files of a checkpoint where the library keeps its own."""

_TRIES = 2
_TIMEOUT_SEC = 30.0


@dataclass(frozen=True, slots=True)
class Hub:
    """Which hub, and as whom.

    Attributes:
        endpoint: Its address; None is the public one.
        token: Of the deployment's account; None is nobody's.
    """

    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self:
        """The hub that HF_ENDPOINT and HF_TOKEN name."""
        return cls(environment.get("HF_ENDPOINT") or None, environment.get("HF_TOKEN") or None)


class HubCheckpoint:
    """One commit of a repository of the hub."""

    def __init__(self, source: ModelSource, hub: Hub) -> None:
        """Ask nothing yet.

        Args:
            source: Of kind `hub`.
            hub: Where it is.
        """
        hub_logging.set_verbosity(logging.ERROR)  # its warnings hold signed links
        self._source = source
        self._hub = hub
        self._endpoint = redact(hub.endpoint or hub_constants.ENDPOINT)
        self._api = HfApi(endpoint=hub.endpoint, token=hub.token or False)
        self._commit = source.revision if COMMIT.fullmatch(source.revision or "") else None

    @property
    def commit(self) -> str:
        """The commit of the source's revision; asks the hub once, and not at all if the revision is one.

        Raises:
            ModelNotFound: There is no such repository or revision, or this deployment may not read it.
            ModelUnavailable: The hub cannot be reached.
        """
        if self._commit is None:
            with self._translated():
                found = self._api.model_info(
                    self._source.hub_name, revision=self._source.revision, timeout=_TIMEOUT_SEC
                ).sha
            if found is None:
                raise ModelUnavailable(f"{self._source}: the hub does not say which commit it is")
            self._commit = found
        return self._commit

    def files(self) -> list[RemoteFile]:
        """All files of the commit.

        Raises:
            ModelNotFound: See `commit`.
            ModelUnavailable: See `commit`.
        """
        with self._translated():  # not its `list_repo_tree`, which waits for an answer for ever
            found = self._api.model_info(
                self._source.hub_name, revision=self.commit, files_metadata=True, timeout=_TIMEOUT_SEC
            )
        return [self._file(file) for file in found.siblings or ()]

    def jobs(self, files: Sequence[RemoteFile], folder: Path, transfer: Transfer) -> Iterator[Job]:
        """The work of fetching files, a job each.

        A job raises `ModelNotFound`, or `ModelUnavailable` for what other attempts may mend.

        Args:
            files: From `files`.
            folder: Where they go; a file is there under its name only when it is complete.
            transfer: Told of what arrives.
        """
        for file in files:
            yield partial(self._fetch, file, folder, transfer)

    def _file(self, file: RepoSibling) -> RemoteFile:
        if file.lfs is not None:
            return RemoteFile(file.rfilename, file.lfs.size, file.blob_id, f"sha256:{file.lfs.sha256}")
        if file.size is None or file.blob_id is None:
            raise ModelUnavailable(
                f"{self._source}: the hub {self._endpoint} does not tell the length and hash of "
                f"{file.rfilename}, so nothing could be checked; use another hub, or the folder of models"
            )
        return RemoteFile(file.rfilename, file.size, file.blob_id, f"git:{file.blob_id}")

    def _fetch(self, file: RemoteFile, folder: Path, transfer: Transfer, tries: int = _TRIES) -> None:
        transfer.add(0)  # ends here if the download was given up
        try:
            path = self._download(file, folder / SCRATCH, transfer, anew=tries < _TRIES)
        except ModelUnavailable:
            if tries == 1:
                raise
            self._fetch(file, folder, transfer, tries - 1)
            return
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)

    def _download(self, file: RemoteFile, scratch: Path, transfer: Transfer, *, anew: bool) -> Path:
        with self._translated(file.name):
            path = Path(
                self._api.hf_hub_download(
                    self._source.hub_name,
                    file.name,
                    revision=self.commit,
                    local_dir=scratch,
                    force_download=anew and (scratch / file.name).exists(),
                    etag_timeout=_TIMEOUT_SEC,
                    tqdm_class=_counting(transfer),
                )
            )
            if path.stat().st_size == file.size and _has(path, file.checksum):
                return path
        raise ModelUnavailable(
            f"{self._source}: {file.name} arrived damaged: it should have {file.size:,} bytes and the "
            f"checksum {file.checksum}"
        )

    @contextmanager
    def _translated(self, what: str = "what it holds") -> Iterator[None]:
        """Turn the library's errors into ours, without what they hold."""
        try:
            yield
        except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, HFValidationError) as error:
            raise self._told(error) from None
        except OSError as error:
            raise ModelUnavailable(
                f"{self._source}: {what} could not be written: {error.strerror}"
                if error.errno is not None
                else f"{self._source}: {what} did not arrive whole"
            ) from None
        except (httpx2.HTTPError, RuntimeError, ValueError) as error:  # RuntimeError is the Xet client's
            raise self._unreachable(type(error).__name__) from None

    def _told(self, error: Exception) -> ModelNotFound | ModelUnavailable:
        if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
            return self._told(error.__cause__)  # it only adds that there is no older copy of the file
        source = self._source
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
        if isinstance(error, GatedRepoError):
            return ModelNotFound(
                f"{source} is gated ({status}): accept its terms on the hub, with the account of the "
                f"deployment's HF_TOKEN{'' if self._hub.token else ', which is not set'}"
            )
        if isinstance(error, RevisionNotFoundError):
            return ModelNotFound(f"{source.uri} has no revision {source.revision!r} on the hub ({status})")
        if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
            return ModelNotFound(f"{source} does not exist on the hub, or {self._access()} ({status})")
        if isinstance(error, HFValidationError):
            return ModelNotFound(f"{source.hub_name!r} cannot be the name of a model on the hub")
        if isinstance(error, OfflineModeIsEnabled):
            return ModelUnavailable(
                f"{source}: this deployment is offline (HF_HUB_OFFLINE is set): put the model's folder into "
                "its folder of models, or name a prefix of an object store"
            )
        return self._unreachable(str(status or type(error).__name__))

    def _access(self) -> str:
        if self._hub.token is None:
            return "is private and the deployment has no HF_TOKEN"
        return "the account of the deployment's HF_TOKEN may not read it"

    def _unreachable(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(
            f"{self._source}: the hub {self._endpoint} cannot be reached, or fails ({why})"
        )


def _has(path: Path, checksum: str | None) -> bool:
    return checksum is None or checksum_of(path, checksum.partition(":")[0]) == checksum


def _counting(transfer: Transfer) -> type:
    """A stand-in for the library's progress bar that counts bytes and stops a download that was given up."""

    class Counting:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.n = self.total = 0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, count: float | None = 1) -> None:
            transfer.add(int(count or 0))

        def update_transfer(self, count: float | None = 1) -> None:
            """Bytes on the wire: fewer than those of the file, where parts of it were here before."""

        def set_postfix_str(self, *_: Any, **__: Any) -> None:
            pass

        set_transfer_postfix_str = set_postfix_str
        close = refresh = set_postfix_str

    return Counting
