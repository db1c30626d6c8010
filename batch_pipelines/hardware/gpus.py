"""The table of GPU types: what one holds, how many a node has, what else the node offers.

The packaged `gpus.yaml` has the values and their sources; a deployment's own file overrides them. Choosing
from the table is in `batch_pipelines.hardware.choose`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from batch_pipelines.api.errors import describe, dotted
from batch_pipelines.api.request import GpuType
from batch_pipelines.hardware.quantities import parse_bytes, parse_cpus

__all__ = ["Gpu", "HardwareTable", "HardwareTableInvalid", "Node", "load_table"]

_PACKAGED = "gpus.yaml"


class HardwareTableInvalid(ValueError):
    """A file with a hardware table cannot be used; the text names the file and the entry."""


def _bytes(value: Any) -> Any:
    return parse_bytes(value, "it") if isinstance(value, str | int | float) else value


def _cpus(value: Any) -> Any:
    return parse_cpus(value, "it") if isinstance(value, str | int | float) else value


Bytes = Annotated[int, BeforeValidator(_bytes)]
Cpus = Annotated[int, BeforeValidator(_cpus)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Node(_Entry):
    """What a pod on a node can have at most."""

    cpus: Cpus
    """Thousandths of a CPU."""
    memory: Bytes
    """Bytes."""
    storage: Bytes
    """Bytes of local disk."""


class Gpu(_Entry):
    """One type of GPU."""

    memory: Bytes
    """Bytes, as its driver reports them."""
    gpus_per_node: int = Field(ge=1)
    """Largest number one pod can have."""
    slice: bool = False
    """Whether it is a part of a GPU; several of them cannot share a model."""
    cost: float = Field(gt=0, allow_inf_nan=False)
    """Of one GPU, compared with the others."""
    only_on_request: bool = False
    """Whether it is taken only if a request names it."""
    large_batches: bool = False
    """Whether the engine takes its larger defaults on it."""
    node: Node
    """What its node offers."""


class HardwareTable(_Entry):
    """What a deployment's replicas can run on."""

    gpu_types: dict[GpuType, Gpu]
    """By the name requests use."""
    cpu_node: Node
    """A node without GPUs."""


def load_table(override: Path | None = None) -> HardwareTable:
    """Read the packaged table, and a deployment's own over it.

    Args:
        override: YAML of the same form, with just the entries and fields that differ; a GPU type that is null
            there is one the deployment does not have.

    Raises:
        HardwareTableInvalid: The file cannot be read, or an entry makes no sense.
    """
    table = _parse(files("batch_pipelines.hardware").joinpath(_PACKAGED).read_text(), _PACKAGED)
    where = _PACKAGED
    if override is not None:
        where = str(override)
        try:
            table = _merged(table, _parse(override.read_text(), where))
        except (OSError, UnicodeDecodeError) as error:
            raise HardwareTableInvalid(f"the hardware table {where} cannot be read: {error}") from error
    gpu_types = table.get("gpu_types")
    if isinstance(gpu_types, Mapping):
        table["gpu_types"] = {name: entry for name, entry in gpu_types.items() if entry is not None}
    try:
        return HardwareTable.model_validate(table)
    except ValidationError as error:
        wrong = "; ".join(f"{dotted(path)}: {message}" for path, message in describe(error))
        raise HardwareTableInvalid(f"the hardware table {where} is wrong: {wrong}") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise HardwareTableInvalid(f"the hardware table {where} is not YAML: {error}") from error
    if not isinstance(value, dict):
        raise HardwareTableInvalid(f"the hardware table {where} is not a mapping with `gpu_types`")
    return value


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(known, value)
        else:
            merged[key] = value
    return merged
