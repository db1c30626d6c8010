"""From a deployment's settings to what its steps and its command line work with: one place for both."""

import os
import shutil

from batch_pipelines.hardware.gpus import HardwareTable, load_table
from batch_pipelines.kubernetes.cluster_table import load_cluster_table, within_cluster
from batch_pipelines.models.catalog import load_catalog
from batch_pipelines.models.checkpoints import Remotes
from batch_pipelines.models.hub import Hub
from batch_pipelines.planning import Deployment
from batch_pipelines.settings import Settings
from batch_pipelines.stages.validate import Policy
from resources.engines import Engines
from resources.fake_engines import FakeEngines
from resources.vllm_engines import ModelAccess, VLLMEngines

__all__ = ["engines_of", "plan_deployment", "policy_of"]


def policy_of(settings: Settings) -> Policy:
    """What requests may do."""
    return Policy(
        allow_trust_remote_code=settings.allow_trust_remote_code,
        max_inline_bytes=settings.max_inline_bytes,
        protected_roots=settings.protected_roots,
        model_roots=[str(settings.models)],
        allow_hub=settings.allow_hub,
        allow_code_evaluator=settings.allow_code_evaluator,
        code_evaluator_python=settings.code_evaluator_python,
        enforces_hardware=settings.enforces_hardware,
        priorities=tuple(settings.priority_classes),
    )


def engines_of(settings: Settings) -> Engines:
    """The engine that answers.

    Raises:
        CatalogInvalid: The deployment's list of models makes no sense.
        TableInvalid: Its table of hardware, or of its cluster, does not.
    """
    if settings.engine == "fake":
        return FakeEngines(
            settings.fake_delay_sec,
            settings.fake_max_in_flight,
            settings.fake_journal,
            _hardware_table(settings),
            settings.enforces_hardware,
            join_timeout_sec=settings.pod_start_timeout_sec,
        )
    return VLLMEngines(
        models=ModelAccess(
            models_dir=settings.models,
            cache=settings.models_cache,
            cache_bytes=settings.model_cache_bytes,
            catalog=load_catalog(settings.model_catalog),
            remotes=Remotes(Hub.of_environment(os.environ)),
            allow_hub=settings.allow_hub,
            allow_pickle=settings.allow_pickle,
        ),
        hardware=_hardware_table(settings),
        start_timeout_sec=settings.engine_start_timeout_sec,
        join_timeout_sec=settings.pod_start_timeout_sec,
        side_by_side=settings.max_local_replicas,
        enforce_hardware=settings.enforces_hardware,
        media_domains=tuple(settings.media_domains),
        engine_args=settings.engine_args,
        environment=settings.engine_env,
        code_evaluator_python=settings.code_evaluator_python,
    )


def plan_deployment(settings: Settings) -> Deployment:
    """What a plan must know.

    Raises:
        TableInvalid: The deployment's table of hardware, or of its cluster, makes no sense.
    """
    return Deployment(
        store=settings.job_store,
        roots=tuple(settings.request_roots),
        policy=policy_of(settings),
        max_item_bytes=settings.max_item_bytes,
        table=_hardware_table(settings),
        gpus_available=settings.enforces_hardware or shutil.which("nvidia-smi") is not None,
        engine_args=settings.engine_args,
    )


def _hardware_table(settings: Settings) -> HardwareTable:
    """What there is; on a cluster, of that what it can be asked for."""
    table = load_table(settings.hardware_table)
    if settings.executor == "local":
        return table
    return within_cluster(table, load_cluster_table(settings.cluster, settings.cluster_table))
