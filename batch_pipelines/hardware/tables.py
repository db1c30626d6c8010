"""Tables in YAML that a deployment may edit: read, laid over the packaged ones, refused by file and entry.

What is in a table is its own module's matter: GPU types in `batch_pipelines.hardware.gpus`, and how a cluster
names them in `batch_pipelines.kubernetes.cluster_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from batch_pipelines.api.errors import describe, dotted
from batch_pipelines.hardware.quantities import parse_bytes, parse_cpus

__all__ = ["Bytes", "Cpus", "Entry", "TableInvalid", "checked", "laid_over", "parse_table", "read_table"]


class TableInvalid(ValueError):
    """A file with a table cannot be used; the text names the file and the entry."""

    what: ClassVar[str] = "table"
    """What the table is called."""


def _bytes(value: Any) -> Any:
    return parse_bytes(value, "it") if isinstance(value, str | int | float) else value


def _cpus(value: Any) -> Any:
    return parse_cpus(value, "it") if isinstance(value, str | int | float) else value


Bytes = Annotated[int, BeforeValidator(_bytes)]
Cpus = Annotated[int, BeforeValidator(_cpus)]


class Entry(BaseModel):
    """A part of a table; a key it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Table = TypeVar("Table", bound=Entry)


def read_table(path: Path, invalid: type[TableInvalid]) -> dict[str, Any]:
    """Read a deployment's own file.

    Args:
        path: Of the file.
        invalid: What to raise.

    Raises:
        TableInvalid: Of the given type: the file cannot be read, or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"the {invalid.what} {path} cannot be read: {error}") from error
    return parse_table(text, str(path), invalid)


def parse_table(text: str, where: str, invalid: type[TableInvalid]) -> dict[str, Any]:
    """Parse a table's text.

    Args:
        text: YAML.
        where: Its file, for errors.
        invalid: What to raise.

    Raises:
        TableInvalid: Of the given type: it is not YAML, or no mapping.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise invalid(f"the {invalid.what} {where} is not YAML: {error}") from error
    if not isinstance(value, dict):
        raise invalid(f"the {invalid.what} {where} is not a mapping, such as `gpu_types: ...`")
    return value


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A table with another one's entries over it: mappings are merged, anything else is replaced.

    Args:
        base: The table below.
        over: The entries and fields that differ.
    """
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = laid_over(known, value)
        else:
            merged[key] = value
    return merged


def checked(kind: type[Table], table: Mapping[str, Any], where: str, invalid: type[TableInvalid]) -> Table:
    """A table's entries, checked.

    Args:
        kind: What it must be.
        table: As parsed.
        where: Its file, for errors.
        invalid: What to raise.

    Raises:
        TableInvalid: Of the given type: an entry makes no sense.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        wrong = "; ".join(f"{dotted(path)}: {message}" for path, message in describe(error))
        raise invalid(f"the {invalid.what} {where} is wrong: {wrong}") from error
