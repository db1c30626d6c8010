"""The table of a cluster: how it names GPUs and nodes, and what pods ask for beside a request's hardware.

The packaged `clusters.yaml` has a profile for each kind of cluster, with reasons; a deployment's own file is
laid over one of them. What pods are made of it is in `batch_pipelines.kubernetes.pod_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from batch_pipelines.api.labels import key_problem, value_problem
from batch_pipelines.api.request import GpuType
from batch_pipelines.hardware.gpus import HardwareTable
from batch_pipelines.hardware.quantities import format_bytes, parse_bytes
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

__all__ = [
    "ClusterTable",
    "ClusterTableInvalid",
    "GpuNodes",
    "Placement",
    "SecurityProfile",
    "SmallStep",
    "Toleration",
    "load_cluster_table",
    "within_cluster",
]

_PACKAGED = "clusters.yaml"


class ClusterTableInvalid(TableInvalid):
    """A file with a cluster table cannot be used; the text names the file and the entry."""

    what: ClassVar[str] = "cluster table"


def _key(text: str) -> str:
    if problem := key_problem(text):
        raise ValueError(problem)
    return text


def _value(text: str) -> str:
    if problem := value_problem(text):
        raise ValueError(problem)
    return text


def _values(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise ValueError(f"must be text or a list of it (got {value!r}); put a number in quotes")


def _amount(value: Any) -> Any:
    """A number of devices, or an amount of memory such as of huge pages, as Kubernetes writes it."""
    if type(value) is int and value > 0:
        return str(value)
    return format_bytes(parse_bytes(value, "it")) if isinstance(value, str) else value


Key = Annotated[str, AfterValidator(_key)]
LabelValue = Annotated[str, AfterValidator(_value)]
LabelValues = Annotated[tuple[LabelValue, ...], BeforeValidator(_values)]
Amount = Annotated[str, BeforeValidator(_amount)]


class Toleration(Entry):
    """A taint of nodes that pods put up with; its fields are Kubernetes' own."""

    key: Key | None = None
    """The taint's; any if left out."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the value must be the same, or may be any."""
    value: LabelValue | None = None
    """The taint's, for `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's; any if left out."""

    @model_validator(mode="after")
    def _as_kubernetes_takes_it(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("operator Exists takes no value")
        if self.key is None and self.operator != "Exists":
            raise ValueError("needs a key, or operator Exists for every taint")
        return self


class Placement(Entry):
    """Which nodes pods may run on."""

    node_labels: dict[Key, LabelValues] = Field(default_factory=dict)
    """By label: values of which any will do; none at all for nodes without it."""
    tolerations: tuple[Toleration, ...] = ()
    """Of their taints."""


class GpuNodes(Placement):
    """How a cluster gives out one type of GPU."""

    resource: Key
    """What its device plugin calls one GPU, such as `nvidia.com/gpu`."""
    runtime_class: str | None = Field(default=None, min_length=1)
    """RuntimeClass of the pods; None for the nodes' default."""
    multi_node_resources: dict[Key, Amount] = Field(default_factory=dict)
    """What each pod of a replica over several nodes takes beside."""


class SmallStep(Placement):
    """The pod of a step without an engine."""

    cpus: Cpus
    """Thousandths of a CPU."""
    memory: Bytes
    """Bytes."""
    storage: Bytes
    """Bytes of local disk."""


class SmallSteps(Entry):
    """The steps without an engine, by their ops."""

    validate_request: SmallStep
    """Checks the request."""
    shard_inputs: SmallStep
    """Reads the input."""
    merge_outputs: SmallStep
    """Writes the output."""


class SecurityProfile(Entry):
    """A seccomp or AppArmor profile."""

    type: Literal["RuntimeDefault", "Localhost", "Unconfined"]
    """Whose it is."""
    localhost_profile: str | None = Field(default=None, min_length=1)
    """Its name on the nodes, for `Localhost`."""

    @model_validator(mode="after")
    def _named_where_needed(self) -> Self:
        if (self.type == "Localhost") != (self.localhost_profile is not None):
            raise ValueError("localhost_profile goes with type Localhost, and only with it")
        return self


class CodeEvaluatorPods(Entry):
    """Security settings of pods that run a model's code; None for those of all other pods."""

    seccomp_profile: SecurityProfile | None = None
    """One that lets the sandbox make user namespaces."""
    app_armor_profile: SecurityProfile | None = None
    """One that lets it mount."""


class ClusterTable(Entry):
    """What a deployment's cluster is like."""

    gpu_types: dict[GpuType, GpuNodes]
    """By the name requests use."""
    cpu_node: Placement = Field(default_factory=Placement)
    """Of replicas without GPUs."""
    small_steps: SmallSteps
    """Of the other steps."""
    lost_node_sec: int = Field(ge=0)
    """Seconds a pod stays bound to a node that does not answer."""
    shm_share: float = Field(gt=0, lt=1)
    """Largest part of a replica's memory that `/dev/shm` may take."""
    code_evaluator: CodeEvaluatorPods = Field(default_factory=CodeEvaluatorPods)
    """Of the pods that run a model's code."""


def load_cluster_table(profile: str, override: Path | None = None) -> ClusterTable:
    """Read a packaged profile, and a deployment's own table over it.

    Args:
        profile: `nvidia`, `eks` or `gke`.
        override: YAML with just the entries and fields that differ; one that is null there is taken out.

    Raises:
        ClusterTableInvalid: There is no such profile, the file cannot be read, or an entry makes no sense.
    """
    text = files("batch_pipelines.kubernetes").joinpath(_PACKAGED).read_text(encoding="utf-8")
    packaged = parse_table(text, _PACKAGED, ClusterTableInvalid)
    profiles: dict[str, Any] = packaged["profiles"]
    if profile not in profiles:
        raise ClusterTableInvalid(f"there is no cluster {profile!r}: expected {', '.join(sorted(profiles))}")
    table = laid_over(packaged["common"], profiles[profile])
    if override is not None:
        table = laid_over(table, read_table(override, ClusterTableInvalid))
    return checked(ClusterTable, _without_nulls(table), str(override or _PACKAGED), ClusterTableInvalid)


def within_cluster(hardware: HardwareTable, cluster: ClusterTable) -> HardwareTable:
    """A table of hardware with just the GPU types that the cluster has, so that no other is ever chosen.

    Args:
        hardware: GPU types and nodes.
        cluster: How the cluster names them.
    """
    known = {name: gpu for name, gpu in hardware.gpu_types.items() if name in cluster.gpu_types}
    return hardware.model_copy(update={"gpu_types": known})


def _without_nulls(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
