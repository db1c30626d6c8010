"""The table of GPU types: what one holds, how many a node has, what else the node offers.

The packaged `gpus.yaml` has the values and their sources; a deployment's own file overrides them. Choosing
from the table is in `batch_pipelines.hardware.choose`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from batch_pipelines.api.request import GpuType
from batch_pipelines.hardware.tables import (
    Bytes,
    Cpus,
    Entry,
    TableInvalid,
    checked,
    laid_over,
    parse_table,
    read_table,
)

__all__ = ["Gpu", "HardwareTable", "HardwareTableInvalid", "Node", "load_table"]

_PACKAGED = "gpus.yaml"


class HardwareTableInvalid(TableInvalid):
    """A file with a hardware table cannot be used; the text names the file and the entry."""

    what: ClassVar[str] = "hardware table"


class Node(Entry):
    """What a pod on a node can have at most."""

    cpus: Cpus
    """Thousandths of a CPU."""
    memory: Bytes
    """Bytes."""
    storage: Bytes
    """Bytes of local disk."""


class Gpu(Entry):
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


class HardwareTable(Entry):
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
    packaged = files("batch_pipelines.hardware").joinpath(_PACKAGED).read_text(encoding="utf-8")
    table = parse_table(packaged, _PACKAGED, HardwareTableInvalid)
    if override is not None:
        table = laid_over(table, read_table(override, HardwareTableInvalid))
    gpu_types = table.get("gpu_types")
    if isinstance(gpu_types, Mapping):
        table["gpu_types"] = {name: entry for name, entry in gpu_types.items() if entry is not None}
    return checked(HardwareTable, table, str(override or _PACKAGED), HardwareTableInvalid)
