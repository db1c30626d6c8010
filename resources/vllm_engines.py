"""vLLM as the engine: which model it loads, how it is set up, and what a request may ask of it."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from batch_pipelines.api.errors import FieldError
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.gang import GangPlace, Start
from batch_pipelines.engines.gang_engine import GangEngine
from batch_pipelines.engines.gang_leader import GangLeader
from batch_pipelines.engines.gang_member import Part
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import Engine, EngineSpec
from batch_pipelines.engines.vllm_args import (
    auto_tools,
    engine_args,
    image_limit,
    merged_settings,
    setting_errors,
    structured_backend,
)
from batch_pipelines.engines.vllm_nodes import start_vllm_part
from batch_pipelines.engines.vllm_server import VLLMServer
from batch_pipelines.hardware.choose import Hardware, HardwareInvalid, infer_hardware
from batch_pipelines.hardware.gpus import HardwareTable
from batch_pipelines.models.cache import evict, in_use
from batch_pipelines.models.catalog import ModelCatalog
from batch_pipelines.models.checkpoint_facts import (
    CheckpointFacts,
)
from batch_pipelines.models.checkpoints import (
    CheckpointPeek,
    EngineModel,
    Remotes,
    identity,
    peek_checkpoint,
    provide_model,
)
from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound
from batch_pipelines.models.file_choice import Wanted
from batch_pipelines.models.local_folders import folder_identity
from batch_pipelines.models.source import ModelSource, locate_model
from batch_pipelines.planning import ModelSeen
from batch_pipelines.preflight.job import check_job
from batch_pipelines.preflight.model_preflight import ModelPreflight
from batch_pipelines.preflight.protocol import NoPreflight, Preflight
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.stages.validate import EngineFindings
from resources.engines import Check, Log
from resources.gangs import led_gang, watched
from resources.vllm_facts import context_errors, context_of, facts_of, quantization_errors, takes_images

__all__ = ["VLLM_VERSION", "ModelAccess", "VLLMEngines"]

VLLM_VERSION: Final = "0.32.0"
"""The engine that all images of a deployment bring; `pyproject.toml` pins the same."""


@dataclass(frozen=True)
class ModelAccess:
    """Where a deployment's models come from.

    Attributes:
        models_dir: Folder of model folders, found by name.
        cache: Folder of what was fetched.
        cache_bytes: How large the cache may grow.
        catalog: The names the deployment knows.
        remotes: The object stores and the hub.
        allow_hub: Whether models may come from the model hub.
        allow_pickle: Whether weights may be pickles, which can run code when they are loaded.
    """

    models_dir: Path
    cache: Path
    cache_bytes: int
    catalog: ModelCatalog
    remotes: Remotes
    allow_hub: bool = True
    allow_pickle: bool = False

    def locate(self, config: BatchCompletionsModelConfig) -> ModelSource:
        """Find a request's model; raises `ModelNotFound`."""
        return locate_model(
            config, catalog=self.catalog, models_dir=self.models_dir, allow_hub=self.allow_hub
        )


@dataclass(frozen=True)
class VLLMEngines:
    """vLLM, as a child process of the step that needs it.

    Attributes:
        models: Where models come from.
        hardware: GPU types and nodes.
        start_timeout_sec: Seconds it may take to load its model.
        join_timeout_sec: Seconds the other nodes of an engine may take to join the first.
        side_by_side: Replicas that share this machine's cores at most.
        enforce_hardware: Whether a replica gets the hardware a request asks for, and no other.
        media_domains: Hosts from which the engine may fetch images.
        engine_args: Engine arguments for what a request leaves unset.
        environment: Environment variables of the engine's process.
        code_evaluator_python: The Python that runs models' code, where it may.
    """

    models: ModelAccess
    hardware: HardwareTable
    start_timeout_sec: float
    join_timeout_sec: float = 1800.0
    side_by_side: int = 1
    enforce_hardware: bool = False
    media_domains: tuple[str, ...] = ()
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    code_evaluator_python: Path | None = None

    def check(self, request: CreateBatchCompletionsV2Request) -> EngineFindings:
        """See `Engines.check`."""
        config = request.engine_config
        try:
            source = self.models.locate(config)
            peek = self._peek(source, config)
        except (ModelNotFound, CheckpointRefused) as error:
            named = "checkpoint_path" if config.checkpoint_path else "model"
            return EngineFindings([FieldError(f"/model_config/{named}", str(error))])
        defaults = self._defaults(source)
        errors = [FieldError(f"/model_config/{name}", why) for name, why in setting_errors(config, defaults)]
        warnings = [*source.warnings]
        facts = facts_of(peek, warnings)
        try:
            warnings += engine_args(config, defaults).warnings
            if self.enforce_hardware:
                infer_hardware(request, facts, self.hardware, gpus_available=True, engine_defaults=defaults)
        except HardwareInvalid as invalid:
            errors += invalid.errors
        except ValueError as error:
            errors.append(FieldError("/model_config", str(error)))
        if peek is None:
            warnings.append(f"{source} cannot be looked at now, so nothing is checked against it")
        else:
            errors += context_errors(config, defaults, facts)
            errors += quantization_errors(config, facts)
            found = check_job(peek.folder, self._preflight_settings(config, source, facts))
            errors += [FieldError("/model_config", problem) for problem in found.problems]
            warnings += found.warnings
        return EngineFindings(errors, warnings)

    def look(self, request: CreateBatchCompletionsV2Request) -> ModelSeen:
        """See `Engines.look`."""
        source = self.models.locate(request.engine_config)
        facts = facts_of(self._peek(source, request.engine_config))
        return ModelSeen(str(source.folder) if source.kind == "folder" else str(source), facts)

    def hardware_for(self, request: CreateBatchCompletionsV2Request) -> Hardware:
        """See `Engines.hardware_for`."""
        source = self.models.locate(request.engine_config)
        facts = facts_of(self._peek(source, request.engine_config))
        return infer_hardware(
            request, facts, self.hardware, gpus_available=True, engine_defaults=self._defaults(source)
        )

    def identity(self, request: CreateBatchCompletionsV2Request) -> str:
        """See `Engines.identity`."""
        source = self.models.locate(request.engine_config)
        facts = {
            "engine": f"vllm=={VLLM_VERSION}",
            "arguments": self._defaults(source),
            "environment": self.environment,
            "model": identity(source, self.models.remotes),
            "tokenizer": _tokenizer_identity(request.engine_config),
            "media_domains": self.media_domains,
            "code_evaluator": str(self.code_evaluator_python) if request.tool_config else None,
        }
        return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()

    def preflight(self, request: CreateBatchCompletionsV2Request) -> Preflight:
        """See `Engines.preflight`."""
        config = request.engine_config
        source = self.models.locate(config)
        peek = self._peek(source, config, hub_required=True)
        if peek is None:
            return NoPreflight()
        return ModelPreflight(peek.folder, self._preflight_settings(config, source, facts_of(peek)))

    @contextmanager
    def ready(
        self,
        request: CreateBatchCompletionsV2Request,
        needs: EngineNeeds,
        hardware: Hardware | None = None,
        *,
        gang: GangPlace | None = None,
        check: Check,
        log: Log,
    ) -> Iterator[Callable[[], Engine]]:
        """See `Engines.ready`."""
        with led_gang(gang, hardware, log) as leader:
            watch = watched(leader, check)
            with self._fetched(request, needs, hardware, check=watch, log=log) as spec:
                if leader is None:
                    yield lambda: self._server(spec)
                    return
                leader.wait_until_ready(watch, self.join_timeout_sec)
                yield lambda: self._first_of(spec, leader)

    @contextmanager
    def member(
        self,
        request: CreateBatchCompletionsV2Request,
        needs: EngineNeeds,
        hardware: Hardware,
        *,
        rank: int,
        address: str,
        check: Check,
        log: Log,
    ) -> Iterator[Callable[[Start], Part]]:
        """See `Engines.member`."""
        with self._fetched(request, needs, hardware, check=check, log=log) as spec:
            yield lambda start: start_vllm_part(spec, start, rank, address)

    def _server(self, spec: EngineSpec) -> VLLMServer:
        return VLLMServer(spec, start_timeout_sec=self.start_timeout_sec)

    def _first_of(self, spec: EngineSpec, leader: GangLeader) -> GangEngine:
        server = self._server(spec)
        return GangEngine(server, leader, server.lead)

    @contextmanager
    def _fetched(
        self,
        request: CreateBatchCompletionsV2Request,
        needs: EngineNeeds,
        hardware: Hardware | None,
        *,
        check: Check,
        log: Log,
    ) -> Iterator[EngineSpec]:
        """What an engine needs to know, once its model is on this machine; it stays there meanwhile."""
        config = request.engine_config
        source = self.models.locate(config)
        wanted = self._wanted(config, source)
        for name in evict(self.models.cache, self.models.cache_bytes):
            log(f"{name} was removed from the cache of models, to make room")
        model = provide_model(source, self.models.cache, self.models.remotes, wanted, check=check, log=log)
        with in_use(self.models.cache, model.folder or self.models.models_dir):
            yield self._spec(request, source, model, needs, hardware, log)

    def _spec(
        self,
        request: CreateBatchCompletionsV2Request,
        source: ModelSource,
        model: EngineModel,
        needs: EngineNeeds,
        hardware: Hardware | None,
        log: Log,
    ) -> EngineSpec:
        config = request.engine_config
        if model.folder is not None:
            config = config.model_copy(update={"revision": None})  # that revision is what was fetched
        if hardware is not None:
            config = config.model_copy(update=_parallel_sizes(hardware))
        environment = dict(self.environment)
        if environment.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind":
            # Unbound threads stall each other once there are more of them, over all replicas, than cores.
            cores = len(os.sched_getaffinity(0))
            threads = max(1, cores // min(request.replicas, self.side_by_side))
            environment.setdefault("OMP_NUM_THREADS", str(threads))
        tokenizer = merged_settings(config, self._defaults(source)).get("tokenizer")
        if model.folder is not None and source.kind != "folder" and tokenizer is None:
            environment.setdefault("HF_HUB_OFFLINE", "1")  # all of it is here
        return EngineSpec(
            model=model.model,
            served_model_name=config.served_model_name or config.model,
            model_config=config,
            defaults={**self._defaults(source), **model.engine_args, **self._media()},
            needs=needs,
            environment=environment,
            log=log,
        )

    def _media(self) -> dict[str, Any]:
        """Let the engine fetch images only where a deployment says so: without a list vLLM asks any host.

        `invalid` is a name that no host can have (RFC 2606).
        """
        return {"allowed_media_domains": list(self.media_domains) or ["invalid"]}

    def _defaults(self, source: ModelSource) -> dict[str, Any]:
        return {**self.engine_args, **source.engine_args}

    def _wanted(self, config: BatchCompletionsModelConfig, source: ModelSource) -> Wanted:
        settings = merged_settings(config, self._defaults(source))
        return Wanted(
            include_code=settings.get("trust_remote_code") is True,
            allow_pickle=self.models.allow_pickle,
            load_format=str(settings.get("load_format") or "auto"),
        )

    def _peek(
        self, source: ModelSource, config: BatchCompletionsModelConfig, *, hub_required: bool = False
    ) -> CheckpointPeek | None:
        return peek_checkpoint(
            source,
            self.models.cache,
            self.models.remotes,
            self._wanted(config, source),
            check=lambda: None,
            log=lambda _: None,
            hub_required=hub_required,
        )

    def _preflight_settings(
        self, config: BatchCompletionsModelConfig, source: ModelSource, facts: CheckpointFacts | None
    ) -> PreflightSettings:
        defaults = self._defaults(source)
        settings = merged_settings(config, defaults)
        longest = settings.get("max_model_len")
        tokenizer = settings.get("tokenizer")
        own_tokenizer = Path(tokenizer) if isinstance(tokenizer, str) and tokenizer[:1] == "/" else None
        return PreflightSettings(
            context=longest if isinstance(longest, int) and longest > 0 else context_of(facts, settings),
            vocab_size=facts.vocab_size if facts else None,
            chat_template=_text(settings.get("chat_template")),
            tokenizer_folder=own_tokenizer,
            tokenizer_elsewhere=tokenizer is not None and own_tokenizer is None,
            tokenizer_mode=_text(settings.get("tokenizer_mode")) or "auto",
            skip_tokenizer=settings.get("skip_tokenizer_init") is True,
            vision=takes_images(facts),
            max_images=image_limit(settings),
            media_domains=frozenset(self.media_domains),
            auto_tools=auto_tools(config, defaults),
            structured_backend=structured_backend(settings),
        )


def _parallel_sizes(hardware: Hardware) -> dict[str, int | None]:
    """The sizes that fit the GPUs a replica has; `num_shards` is an older name of one of them."""
    return {
        "num_shards": None,
        "tensor_parallel_size": hardware.tensor_parallel_size,
        "pipeline_parallel_size": hardware.pipeline_parallel_size,
    }


def _tokenizer_identity(config: BatchCompletionsModelConfig) -> str | None:
    """What tells a tokenizer's folder from another; of any other name, the request itself does."""
    folder = Path(config.tokenizer.removeprefix("file://")) if config.tokenizer else None
    return folder_identity(folder) if folder is not None and folder.is_dir() else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
