"""Deployment settings, read from `BATCH_PIPELINES_*` environment variables.

What one deployment decides for all its jobs belongs here: where state lies, which storage a
request may name, which engine runs. What a request decides is in `batch_pipelines.api`.
"""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["Settings"]


ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
"""A name of something in a Kubernetes cluster."""
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]
"""A label's name, as requests give it."""


class Settings(BaseSettings):
    """Settings of a deployment. Lists and mappings are given as JSON."""

    model_config = SettingsConfigDict(env_prefix="BATCH_PIPELINES_", frozen=True)

    home: Annotated[
        Path,
        Field(description="Folder for what this deployment keeps on this machine."),
    ] = Path(".batch-pipelines")
    store: Annotated[str | None, Field(description="URI of the job store. Default: `jobs` under `home`.")] = (
        None
    )
    storage_roots: Annotated[
        list[str] | None,
        Field(
            description="Storage prefixes that requests may read and write. Default: the folder where the "
            "deployment is started. The job store is always open to the deployment itself."
        ),
    ] = None
    models_dir: Annotated[
        Path | None,
        Field(description="Folder of model folders, found by name. Default: `models` under `home`."),
    ] = None
    model_catalog: Annotated[
        Path | None,
        Field(description="YAML file of model names and where their weights are, beside the packaged ones."),
    ] = None
    model_cache: Annotated[
        Path | None,
        Field(description="Folder of models that were fetched. Default: `model-cache` under `home`."),
    ] = None
    model_cache_bytes: Annotated[
        int, Field(ge=0, description="Size to which that folder is cut down before a model is fetched.")
    ] = 500 * 10**9
    allow_hub: Annotated[
        bool, Field(description="Whether models may come from the model hub; its token is HF_TOKEN.")
    ] = True
    allow_pickle: Annotated[
        bool, Field(description="Whether fetched weights may be pickles, which can run code when loaded.")
    ] = False
    allow_trust_remote_code: Annotated[
        bool, Field(description="Whether a request may have the engine run a checkpoint's own code.")
    ] = False
    allow_code_evaluator: Annotated[
        bool, Field(description="Whether a request's model may run code, in a sandbox: `tool_config`.")
    ] = False
    code_evaluator_python: Annotated[
        Path | None,
        Field(description="Python that runs such code, with its packages. Default: one without any."),
    ] = None
    media_domains: Annotated[
        list[str], Field(description="Hosts from which the engine may fetch images that items name by URL.")
    ] = []
    hardware_table: Annotated[
        Path | None, Field(description="YAML file of GPU types and nodes, beside the packaged ones.")
    ] = None
    enforce_hardware: Annotated[
        bool,
        Field(description="Whether replicas get the hardware asked for; what cannot be is then refused."),
    ] = False

    executor: Annotated[
        Literal["local", "kubernetes"],
        Field(description="Where steps run: as processes here, or as pods with the request's hardware."),
    ] = "local"
    cluster: Annotated[
        Literal["nvidia", "eks", "gke"],
        Field(
            description="How the cluster names its GPUs and nodes; `nvidia` is NVIDIA's own device plugin."
        ),
    ] = "nvidia"
    cluster_table: Annotated[
        Path | None, Field(description="YAML file of how GPU types are asked for, over the packaged one.")
    ] = None
    replica_image: Annotated[
        Annotated[str, Field(pattern=r"^\S+$")] | None,
        Field(description="Image of the pods with engines. Default: the image of all other steps."),
    ] = None
    priority_classes: Annotated[
        dict[str, ObjectName],
        Field(description="PriorityClass of the pods, by the names a request's `priority` may have."),
    ] = {}
    pod_labels: Annotated[
        list[LabelName],
        Field(
            description="Labels of requests that pods carry under their own names, such as for cost reports."
        ),
    ] = ["team", "product"]
    step_service_account: Annotated[
        ObjectName | None,
        Field(
            description="Service account of steps' pods, which ask nothing of Kubernetes. Default: the runs'."
        ),
    ] = None
    kueue_queue: Annotated[
        ObjectName | None,
        Field(description="Kueue's local queue through which pods with engines are admitted."),
    ] = None
    pod_start_timeout_sec: Annotated[
        float, Field(gt=0, description="Seconds a pod may wait for a node or its image.")
    ] = 1800.0
    pod_ttl_sec: Annotated[
        int, Field(ge=60, description="Seconds that pods which have ended are kept, for their logs.")
    ] = 3600

    engine: Annotated[
        Literal["vllm", "fake"],
        Field(description="`fake` answers deterministically without a model: for tests."),
    ] = "vllm"
    engine_args: Annotated[
        dict[str, Any],
        Field(description="Engine arguments, by `model_config` name, for what a request leaves unset."),
    ] = {}
    engine_env: Annotated[
        dict[str, str], Field(description="Environment variables of the engine's process.")
    ] = {}
    fake_delay_sec: Annotated[
        float, Field(ge=0, description="Seconds the fake engine takes for a request.")
    ] = 0.0
    fake_max_in_flight: Annotated[int, Field(ge=1, description="Requests the fake engine takes at once.")] = (
        64
    )
    fake_journal: Annotated[
        Path | None, Field(description="File to which the fake engine appends a line for every request.")
    ] = None

    max_local_replicas: Annotated[
        int,
        Field(ge=1, le=64, description="Replicas that run side by side on this machine, whatever is asked."),
    ] = 2
    max_inline_bytes: Annotated[
        int, Field(gt=0, description="Largest inline `content`, in bytes of JSON; more must come as a file.")
    ] = 2**20
    max_item_bytes: Annotated[int, Field(gt=0, description="Largest item, in bytes of JSON.")] = 16 * 2**20
    shard_max_items: Annotated[int, Field(ge=1, description="Most items in a shard.")] = 1024
    shard_max_bytes: Annotated[
        int, Field(gt=0, description="Most bytes in a shard, but for a single larger item.")
    ] = 8 * 2**20
    heartbeat_sec: Annotated[
        float, Field(gt=0, description="Seconds between a replica's progress reports.")
    ] = 5.0
    claim_ttl_sec: Annotated[
        float, Field(gt=0, description="Seconds of silence after which a replica's claims are free.")
    ] = 60.0
    engine_start_timeout_sec: Annotated[
        float, Field(gt=0, description="Seconds an engine may take to load its model.")
    ] = 1800.0
    max_run_retries: Annotated[
        int, Field(ge=0, le=10, description="How often a run that lost its process is started anew.")
    ] = 2

    dagster_url: Annotated[str, Field(description="Address of the Dagster webserver.")] = (
        "http://127.0.0.1:3000"
    )
    location: Annotated[str, Field(description="Name of the code location in Dagster.")] = "batch_pipelines"

    @field_validator("media_domains")
    @classmethod
    def _lower(cls, hosts: list[str]) -> list[str]:
        return [host.lower() for host in hosts]

    @model_validator(mode="after")
    def _heartbeats_within_ttl(self) -> Self:
        if self.claim_ttl_sec < 3 * self.heartbeat_sec:
            raise ValueError("claim_ttl_sec must be at least three times heartbeat_sec")
        return self

    @field_validator(
        "home",
        "models_dir",
        "model_catalog",
        "model_cache",
        "code_evaluator_python",
        "hardware_table",
        "cluster_table",
        "fake_journal",
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path is not None else None

    @property
    def enforces_hardware(self) -> bool:
        """Whether replicas get the hardware asked for; pods always do."""
        return self.enforce_hardware or self.executor == "kubernetes"

    @property
    def job_store(self) -> str:
        """URI of the job store, without a trailing slash."""
        store = self.store or (self.home.absolute() / "jobs").as_uri()
        return store.rstrip("/")

    @property
    def models(self) -> Path:
        """Folder of model folders."""
        return self.models_dir or self.home.absolute() / "models"

    @property
    def models_cache(self) -> Path:
        """Folder of models that were fetched."""
        return self.model_cache or self.home.absolute() / "model-cache"

    @property
    def request_roots(self) -> list[str]:
        """Storage prefixes that requests may name."""
        return self.storage_roots if self.storage_roots is not None else [Path.cwd().as_uri()]

    @property
    def protected_roots(self) -> list[str]:
        """Folders of this deployment's own, which no request may name even if they lie in its roots."""
        home = self.home.absolute()
        return [str(home / "dagster"), str(home / "logs"), str(self.models), str(self.models_cache)]

    @property
    def claim_ttl(self) -> timedelta:
        """Silence after which a replica counts as gone."""
        return timedelta(seconds=self.claim_ttl_sec)
