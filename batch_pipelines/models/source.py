"""From the model of a request to the place of its weights. Nothing is opened or asked here but local folders.

The order: `checkpoint_path`; an entry of the catalogue; a folder of the deployment's models; the model hub.
An entry that only names the hub gives way to a folder of the same name, so that a machine without a way out
needs no catalogue of its own. Fetching what was found is in `batch_pipelines.models.checkpoints`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from batch_pipelines.api.names import suggestion
from batch_pipelines.models.catalog import OBJECT_SCHEMES, REVISION, CatalogEntry, ModelCatalog
from batch_pipelines.models.errors import ModelNotFound
from batch_pipelines.storage.locations import InvalidPath, Location, parse_location, redact

if TYPE_CHECKING:
    from batch_pipelines.api.model_config import BatchCompletionsModelConfig

__all__ = ["HUB_SCHEME", "ModelSource", "SourceKind", "locate_model"]

SourceKind = Literal["folder", "objects", "hub"]

HUB_SCHEME: Final = "hf://"

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where the weights of a model are.

    Attributes:
        kind: A local folder, a prefix of an object store, or a repository of the model hub.
        uri: `file:///folder`, `s3://bucket/prefix` (`gs`, `az`), or `hf://owner/name`.
        revision: Branch, tag or commit on the hub; None is its default branch.
        engine_args: Defaults that come with the model, by `model_config` name.
        warnings: What whoever sent the request should know.
    """

    kind: SourceKind
    uri: str
    revision: str | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The local folder; only of a `folder`."""
        return Path(unquote(self.uri.removeprefix("file://"), errors="surrogateescape"))

    @property
    def hub_name(self) -> str:
        """The name on the hub; only of a `hub`."""
        return self.uri.removeprefix(HUB_SCHEME)

    def __str__(self) -> str:
        """The address, with the revision where there is one."""
        return self.uri if self.revision is None else f"{self.uri}@{self.revision}"


def locate_model(
    config: BatchCompletionsModelConfig, *, catalog: ModelCatalog, models_dir: Path, allow_hub: bool
) -> ModelSource:
    """Find where the weights of a request's model are.

    Args:
        config: Its `model`, `checkpoint_path` and `revision` are read.
        catalog: The names the deployment knows.
        models_dir: Folder of model folders, found by name.
        allow_hub: Whether models may come from the model hub.

    Raises:
        ModelNotFound: There is no such folder, the name cannot be one (so that none leads out of
            `models_dir`), or the hub would be needed and is not allowed.
    """
    entry = catalog.find(config.model)
    if config.checkpoint_path is not None:
        source = _at_path(config.checkpoint_path, config.revision)
    elif entry is not None and entry.checkpoint is not None:
        source = _at_entry(config.model, entry.checkpoint)
    else:
        source = _named(config.model, entry, models_dir)
    source = _with_revision(source, config.revision)
    if source.kind == "hub" and not allow_hub:
        raise ModelNotFound(_without_hub(config, source, entry, catalog, models_dir))
    if source.kind == "hub" and entry is None and config.checkpoint_path is None:
        hint = suggestion(config.model, catalog.entries)
        asked = f"model {config.model!r} is not in the catalogue and not a folder of {models_dir}{hint}"
        source = replace(source, warnings=(*source.warnings, f"{asked}: the model hub is asked for it"))
    return replace(source, engine_args=entry.engine_args) if entry is not None else source


def _at_path(path: str, revision: str | None) -> ModelSource:
    if path.startswith(HUB_SCHEME):
        return _at_hub_path(path, revision)
    try:
        location = parse_location(path, Path("/"))
    except InvalidPath as error:
        raise ModelNotFound(f"checkpoint_path {error}") from error
    if location.scheme in OBJECT_SCHEMES:
        return ModelSource("objects", location.uri)
    if location.scheme != "file" or not path.startswith(("/", "file:")) or not location.path.is_dir():
        raise ModelNotFound(
            f"checkpoint_path {redact(path)!r} is not an existing absolute folder, nor a prefix in s3://, "
            "gs:// or az://, nor hf://owner/name"
        )
    return ModelSource("folder", location.uri)


def _at_hub_path(path: str, revision: str | None) -> ModelSource:
    name, mark, own = path.removeprefix(HUB_SCHEME).partition("@")
    if not _is_name(name) or (mark and not _is_revision(own)):
        raise ModelNotFound(f"checkpoint_path {path!r} is not hf://owner/name or hf://owner/name@revision")
    if mark and revision not in (None, own):
        raise ModelNotFound(f"revision {revision!r} contradicts checkpoint_path {path!r}; leave one out")
    return ModelSource("hub", HUB_SCHEME + name, own or None)


def _at_entry(model: str, checkpoint: str) -> ModelSource:
    location = parse_location(checkpoint, Path("/"))
    if location.scheme in OBJECT_SCHEMES:
        return ModelSource("objects", location.uri)
    if not location.path.is_dir():
        raise ModelNotFound(
            f"model {model!r}: the deployment's catalogue says {checkpoint}, and there is no such folder here"
        )
    return ModelSource("folder", location.uri)


def _named(model: str, entry: CatalogEntry | None, models_dir: Path) -> ModelSource:
    hub = entry.hub if entry is not None else None
    if hub is None and not _is_name(model):
        raise ModelNotFound(f"model {model!r} is not the name of a model: expected 'name' or 'owner/name'")
    for name in (model, *((hub, hub.partition("/")[2]) if hub is not None else ())):
        folder = models_dir.absolute() / name
        if _is_name(name) and (folder / "config.json").is_file():
            return ModelSource("folder", Location("file", "", str(folder).strip("/")).uri)
    return ModelSource("hub", HUB_SCHEME + (hub or model), entry.revision if entry is not None else None)


def _with_revision(source: ModelSource, revision: str | None) -> ModelSource:
    """The request's own revision goes before the catalogue's."""
    if revision is None:
        return source
    if source.kind != "hub":
        return replace(
            source, warnings=(f"model_config.revision has no effect: the weights are in {source.uri}",)
        )
    if not _is_revision(revision):
        raise ModelNotFound(f"revision {revision!r} is not a branch, tag or commit")
    return replace(source, revision=revision)


def _without_hub(
    config: BatchCompletionsModelConfig,
    source: ModelSource,
    entry: CatalogEntry | None,
    catalog: ModelCatalog,
    models_dir: Path,
) -> str:
    if config.checkpoint_path is not None:
        return f"checkpoint_path {source}: this deployment takes no models from the hub"
    if entry is not None:
        return (
            f"model {config.model!r} is {source} in the catalogue, and this deployment takes no models from "
            f"the hub: put its folder into {models_dir}, or its place into the deployment's catalogue"
        )
    return (
        f"model {config.model!r} is not in the catalogue and not a folder of {models_dir}, and this "
        f"deployment takes no models from the hub{suggestion(config.model, catalog.entries)}"
    )


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and ".." not in name


def _is_revision(revision: str) -> bool:
    return REVISION.fullmatch(revision) is not None and ".." not in revision
