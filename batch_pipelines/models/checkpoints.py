"""Getting a checkpoint for an engine: the whole of it, just what describes it, or what tells it from others.

What is fetched lies in a cache under a name made of its address and its version: the commit on the hub, the
listing of an object store. So weights that are replaced in place become another entry, and one that is there
is never looked into again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from batch_pipelines.models.cache import CacheEntry
from batch_pipelines.models.errors import ModelUnavailable
from batch_pipelines.models.fetching import RECORD, Check, Fetch, Log, Part, files_digest, obtain, of_part
from batch_pipelines.models.file_choice import FileChoice, Wanted, choose, known_files
from batch_pipelines.models.hub import Hub, HubCheckpoint
from batch_pipelines.models.local_folders import folder_identity
from batch_pipelines.models.objects import CheckpointChanged, ObjectCheckpoint
from batch_pipelines.models.source import ModelSource
from batch_pipelines.models.streaming import is_streamed, tensorizer_uri
from batch_pipelines.storage.stores import Stores

__all__ = [
    "CheckpointPeek",
    "EngineModel",
    "Remotes",
    "fetch_checkpoint",
    "identity",
    "peek_checkpoint",
    "provide_model",
]

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Remotes:
    """Where checkpoints are fetched from, with the deployment's own credentials.

    Attributes:
        hub: The model hub.
        stores: The object stores.
    """

    hub: Hub
    stores: Stores = field(default_factory=Stores)


@dataclass(frozen=True, slots=True)
class CheckpointPeek:
    """What describes a checkpoint.

    Attributes:
        folder: Holds its configuration, tokenizer, chat template and index of weights.
        weights: Names of the weight files an engine would read; empty of a local folder.
        weight_bytes: Their bytes; None of a local folder, and where the engine makes the weights up.
    """

    folder: Path
    weights: tuple[str, ...] = ()
    weight_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What an engine is told to load.

    Attributes:
        model: A folder, or an object prefix the engine reads by itself.
        engine_args: What else it must be told, whatever the request says.
        folder: What it reads on this machine, to be held with `cache.in_use` while it runs; None of a prefix.
    """

    model: str
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None


def provide_model(
    source: ModelSource, cache: Path, remotes: Remotes, wanted: Wanted, *, check: Check, log: Log
) -> EngineModel:
    """Make a model ready for an engine: downloaded, or left where it is if the engine streams it.

    Arguments and errors are those of `fetch_checkpoint`.
    """
    if not is_streamed(source, wanted.load_format):
        folder = fetch_checkpoint(source, cache, remotes, wanted, check=check, log=log)
        return EngineModel(str(folder), folder=folder)
    if wanted.load_format != "tensorizer":
        return EngineModel(source.uri)
    peek = _peek(source, cache, remotes, wanted, check, log)
    extra = {
        "tensorizer_uri": tensorizer_uri(source.uri, peek.weights),
        **source.engine_args.get("model_loader_extra_config", {}),
    }
    return EngineModel(str(peek.folder), {"model_loader_extra_config": extra}, peek.folder)


def fetch_checkpoint(
    source: ModelSource, cache: Path, remotes: Remotes, wanted: Wanted, *, check: Check, log: Log
) -> Path:
    """Return a folder with a checkpoint, fetched now unless it is here already.

    Of several processes at once, one fetches and the others wait. A fetch that was interrupted goes on after
    the last file that was finished.

    Args:
        source: Where it is; a local folder is returned as it is.
        cache: The cache's folder, on a disk with room for it. Hold what is returned with `cache.in_use`.
        remotes: Where to fetch from.
        wanted: What is taken of it.
        check: Called about once a second; what it raises ends the fetch.
        log: Called with a line now and then.

    Raises:
        ModelNotFound: There is no such checkpoint, or this deployment may not read it.
        CheckpointRefused: It is incomplete, pickled, or not for this engine.
        ModelUnavailable: Network, store, hub or disk failed; another attempt may succeed.
    """
    if source.kind == "folder":
        return source.folder
    return _obtained(source, cache, remotes, wanted, "whole", check, log)


def peek_checkpoint(
    source: ModelSource,
    cache: Path,
    remotes: Remotes,
    wanted: Wanted,
    *,
    check: Check,
    log: Log,
    hub_required: bool = True,
) -> CheckpointPeek | None:
    """Return what describes a checkpoint, without its weights; that those can be had is checked too.

    Arguments and errors are those of `fetch_checkpoint`; some 100 MB of disk suffice.

    Args:
        source: See `fetch_checkpoint`.
        cache: See `fetch_checkpoint`.
        remotes: See `fetch_checkpoint`.
        wanted: See `fetch_checkpoint`.
        check: See `fetch_checkpoint`.
        log: See `fetch_checkpoint`.
        hub_required: Whether a hub that cannot be reached is an error.

    Returns:
        None if the hub cannot be reached and need not be.
    """
    is_streamed(source, wanted.load_format)
    try:
        return _peek(source, cache, remotes, wanted, check, log)
    except ModelUnavailable as error:
        if source.kind != "hub" or hub_required:
            raise
        log(f"{error}; the model is not looked at before it is loaded")
        return None


def identity(source: ModelSource, remotes: Remotes) -> str:
    """Return what tells these weights from any that may later have the same name.

    Of a local folder it is a digest of its files, of an object prefix one of its listing, and of the hub the
    commit, which may take the place of the source's revision to hold a job to it.

    Raises:
        ModelNotFound: There is no such checkpoint, or this deployment may not read it.
        ModelUnavailable: The store or the hub cannot be reached.
    """
    if source.kind == "folder":
        return folder_identity(source.folder)
    if source.kind == "hub":
        return HubCheckpoint(source, remotes.hub).commit
    return files_digest(known_files(ObjectCheckpoint(source.uri, remotes.stores, _not_told).files()))


def _peek(
    source: ModelSource, cache: Path, remotes: Remotes, wanted: Wanted, check: Check, log: Log
) -> CheckpointPeek:
    if source.kind == "folder":
        return CheckpointPeek(source.folder)
    folder = _obtained(source, cache, remotes, wanted, "metadata", check, log)
    record = orjson.loads((folder / RECORD).read_bytes())
    return CheckpointPeek(folder, tuple(record["weights"]), record["weight_bytes"])


def _obtained(
    source: ModelSource, cache: Path, remotes: Remotes, wanted: Wanted, part: Part, check: Check, log: Log
) -> Path:
    reason = ""
    for _ in range(_ATTEMPTS):
        check()
        fetch = _planned(source, cache, remotes, wanted, part, check, log)
        try:
            obtain(fetch)
        except CheckpointChanged as error:
            reason = f"{error} while the checkpoint was fetched"
            log(f"{reason}; looking at it again")
            continue
        return fetch.entry.folder
    raise ModelUnavailable(f"{reason}, {_ATTEMPTS} times in a row: is something still writing there?")


def _planned(
    source: ModelSource, cache: Path, remotes: Remotes, wanted: Wanted, part: Part, check: Check, log: Log
) -> Fetch:
    """The fetch of the version there is now. Of a commit of the hub nothing is asked: it never changes."""
    checkpoint: HubCheckpoint | ObjectCheckpoint
    if source.kind == "hub":
        checkpoint = hub = HubCheckpoint(source, remotes.hub)
        version = repr((hub.commit, part, wanted.include_code, wanted.allow_pickle, wanted.weight_rule))

        def chosen() -> FileChoice:
            return choose(hub.files(), wanted, str(source))
    else:
        checkpoint = objects = ObjectCheckpoint(source.uri, remotes.stores, log)
        choice = choose(objects.files(), wanted, source.uri)
        version = repr((files_digest(of_part(choice, part)), part, wanted.weight_rule))

        def chosen() -> FileChoice:
            return choice

    entry = CacheEntry(cache, _entry_name(source, version))
    return Fetch(str(source), checkpoint, chosen, part, entry, check, log)


def _entry_name(source: ModelSource, version: str) -> str:
    """The last part of the address, for people, and a digest."""
    last = re.sub(r"[^\w.-]", "_", source.uri.rpartition("/")[2], flags=re.ASCII).strip(".")[:60]
    digest = hashlib.sha256(f"{source.uri}\0{version}".encode()).hexdigest()[:24]
    return f"{last or 'model'}-{digest}"


def _not_told(_: str) -> None:
    """A listing has nothing to tell."""
