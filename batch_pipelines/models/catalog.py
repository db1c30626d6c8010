"""The model catalogue: names people use, and which checkpoint each stands for.

The packaged `catalog.yaml` names public checkpoints on the model hub; a deployment's own file adds to it or
replaces entries. How a request's model is looked up, with and without the catalogue, is in
`batch_pipelines.models.source`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from batch_pipelines.api.errors import describe, dotted
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.models.errors import CatalogInvalid
from batch_pipelines.storage.locations import InvalidPath, parse_location

__all__ = ["HUB_NAME", "OBJECT_SCHEMES", "REVISION", "CatalogEntry", "ModelCatalog", "load_catalog"]

HUB_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
REVISION: Final = re.compile(r"\w(?:[\w.-]|/(?=\w))*", re.ASCII)
OBJECT_SCHEMES: Final = ("s3", "gs", "az")

_PACKAGED: Final = "catalog.yaml"
_NAME = re.compile(r"[A-Za-z0-9_][\w./:-]*", re.ASCII)
_ARGUMENT = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_OWN_FIELDS = ("model", "checkpoint_path", "served_model_name", "revision")


class CatalogEntry(BaseModel):
    """A model: where its weights are, and how its engine is set up unless a request says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    checkpoint: str | None = None
    """Absolute folder, or prefix in `s3://`, `gs://` or `az://`."""
    hub: str | None = None
    """Name on the model hub, `owner/name`."""
    revision: str | None = None
    """Branch, tag or commit on the hub; the default branch if unset."""
    aliases: list[str] = Field(default_factory=list)
    """Other names for it."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Defaults by `model_config` name, or by the name of another argument of the engine."""

    @field_validator("checkpoint")
    @classmethod
    def _place(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.startswith("hf://"):
            raise ValueError("names the model hub; write it as `hub: owner/name`")
        try:
            location = parse_location(value, Path("/"))
        except InvalidPath as error:
            raise ValueError(str(error)) from error
        if location.scheme == "file" and (value.startswith(("/", "file:"))):
            return str(location.path)
        if location.scheme in OBJECT_SCHEMES:
            return location.uri
        raise ValueError(f"{value!r} is neither an absolute folder nor a prefix in s3://, gs:// or az://")

    @field_validator("hub")
    @classmethod
    def _hub_name(cls, value: str | None) -> str | None:
        if value is not None and (not HUB_NAME.fullmatch(value) or ".." in value):
            raise ValueError(f"{value!r} is not a name on the model hub: expected 'owner/name'")
        return value

    @field_validator("revision")
    @classmethod
    def _revision(cls, value: str | None) -> str | None:
        if value is not None and (not REVISION.fullmatch(value) or ".." in value):
            raise ValueError(f"{value!r} is not a branch, tag or commit")
        return value

    @field_validator("engine_args")
    @classmethod
    def _engine_args(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not _ARGUMENT.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of an argument, such as `max_model_len`")
            if name in _OWN_FIELDS:
                raise ValueError(f"`{name}` does not belong here; it is told by the entry itself")
        try:
            BatchCompletionsModelConfig.model_validate({"model": "any", **value})
        except ValidationError as error:
            raise ValueError("; ".join(f"{dotted(p)} {message}" for p, message in describe(error))) from error
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.checkpoint is None) == (self.hub is None):
            raise ValueError("needs `checkpoint` or `hub`, and not both")
        if self.revision is not None and self.hub is None:
            raise ValueError("`revision` is of the model hub; a `checkpoint` has none")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    models: dict[str, CatalogEntry | None]


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """The models a deployment knows by name; upper and lower case are the same.

    Attributes:
        entries: By lower-case name; aliases and names on the hub are names too.
    """

    entries: Mapping[str, CatalogEntry]

    def find(self, name: str) -> CatalogEntry | None:
        """The entry with this name, if there is one."""
        return self.entries.get(name.lower())


def load_catalog(override: Path | None = None) -> ModelCatalog:
    """Read the packaged catalogue, and a deployment's own over it.

    Args:
        override: YAML of the same form. Its entries add to the packaged ones or take their names over; a name
            that is null there is unknown to the deployment.

    Raises:
        CatalogInvalid: The file cannot be read, or an entry makes no sense.
    """
    packaged = files("batch_pipelines.models").joinpath(_PACKAGED).read_text(encoding="utf-8")
    entries = _parse(packaged, _PACKAGED)
    if override is not None:
        try:
            text = override.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogInvalid(f"the model catalogue {override} cannot be read: {error}") from error
        entries |= _parse(text, str(override))
    return ModelCatalog({name: entry for name, entry in entries.items() if entry is not None})


def _parse(text: str, where: str) -> dict[str, CatalogEntry | None]:
    """The entries of a file by every name they have, in lower case."""
    try:
        _refuse_repeated(yaml.compose(text, Loader=yaml.SafeLoader), where)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CatalogInvalid(f"the model catalogue {where} is not YAML: {error}") from error
    if not isinstance(value, dict):
        raise CatalogInvalid(f"the model catalogue {where} is not a mapping with `models`")
    try:
        models = _File.model_validate(value).models
    except ValidationError as error:
        wrong = "; ".join(f"{dotted(path)}: {message}" for path, message in describe(error))
        raise CatalogInvalid(f"the model catalogue {where} is wrong: {wrong}") from error
    entries: dict[str, CatalogEntry | None] = {}
    for name, alias, entry in _names(models):
        if not _NAME.fullmatch(alias) or ".." in alias:
            raise CatalogInvalid(f"the model catalogue {where}: models.{name}: {alias!r} cannot be a name")
        if alias.lower() in entries:
            raise CatalogInvalid(f"the model catalogue {where}: models.{name}: {alias!r} is there twice")
        entries[alias.lower()] = entry
    for entry in models.values():
        if entry is not None and entry.hub is not None:
            entries.setdefault(entry.hub.lower(), entry)
    return entries


def _names(models: Mapping[str, CatalogEntry | None]) -> Iterator[tuple[str, str, CatalogEntry | None]]:
    for name, entry in models.items():
        for alias in (name, *(entry.aliases if entry is not None else ())):
            yield name, alias, entry


def _refuse_repeated(node: Any, where: str) -> None:
    """Refuse a key that is there twice, of which the parser would silently take the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        if key.value in seen:
            line = key.start_mark.line + 1
            raise CatalogInvalid(f"the model catalogue {where}, line {line}: {key.value!r} is there twice")
        seen.add(key.value)
        _refuse_repeated(value, where)
