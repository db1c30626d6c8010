"""The engine resource: which engine answers, and what the deployment sets for it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import Engine, EngineSpec
from batch_pipelines.engines.vllm_args import engine_args
from batch_pipelines.engines.vllm_server import VLLMServer
from batch_pipelines.models.registry import model_identity, resolve_model

__all__ = ["VLLM_VERSION", "Engines", "FakeEngines", "VLLMEngines"]

VLLM_VERSION = "0.32.0"
"""The engine that all images of a deployment bring; `pyproject.toml` pins the same."""


class Engines(Protocol):
    """Makes the engine of a replica."""

    def check(self, request: CreateBatchCompletionsV2Request) -> list[str]:
        """Check what can be told without starting an engine.

        Returns:
            Warnings: settings that have no effect.

        Raises:
            ValueError: The engine would refuse a setting; the message names it.
        """
        ...

    def identity(self, request: CreateBatchCompletionsV2Request) -> str:
        """What tells this engine, as set up and with these weights, from any that may answer otherwise."""
        ...

    def make(
        self, request: CreateBatchCompletionsV2Request, needs: EngineNeeds, log: Callable[[str], None]
    ) -> Engine:
        """An engine for the request, not started yet.

        Args:
            request: Names the model and how its engine is set up.
            needs: What the items ask of its set-up.
            log: Called with every line the engine prints, from any thread.
        """
        ...


@dataclass(frozen=True)
class VLLMEngines:
    """vLLM, as a child process of the step that needs it.

    Attributes:
        models_dir: Folder of model folders, found by name.
        start_timeout_sec: Seconds it may take to load its model.
        engine_args: Engine arguments for what a request leaves unset.
        environment: Environment variables of the engine's process.
        side_by_side: Replicas that share this machine's cores at most.
    """

    models_dir: Path
    start_timeout_sec: float
    side_by_side: int = 1
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def check(self, request: CreateBatchCompletionsV2Request) -> list[str]:
        """See `Engines.check`."""
        model = self._model(request)
        warnings = engine_args(request.engine_config, self.engine_args).warnings
        if not Path(model).is_absolute() and "://" not in model:
            warnings.append(f"no folder {model!r} in {self.models_dir}: the engine asks the model hub for it")
        return warnings

    def identity(self, request: CreateBatchCompletionsV2Request) -> str:
        """See `Engines.identity`."""
        facts = {
            "engine": f"vllm=={VLLM_VERSION}",
            "arguments": self.engine_args,
            "environment": self.environment,
            "model": model_identity(self._model(request)),
        }
        return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()

    def make(
        self, request: CreateBatchCompletionsV2Request, needs: EngineNeeds, log: Callable[[str], None]
    ) -> Engine:
        """See `Engines.make`."""
        config = request.engine_config
        spec = EngineSpec(
            model=self._model(request),
            served_model_name=config.served_model_name or config.model,
            model_config=config,
            defaults=self.engine_args,
            needs=needs,
            environment=self._environment(request.replicas),
            log=log,
        )
        return VLLMServer(spec, start_timeout_sec=self.start_timeout_sec)

    def _model(self, request: CreateBatchCompletionsV2Request) -> str:
        config = request.engine_config
        return resolve_model(config.model, config.checkpoint_path, models_dir=self.models_dir)

    def _environment(self, replicas: int) -> dict[str, str]:
        environment = dict(self.environment)
        if environment.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind":
            # Unbound threads stall each other once there are more of them, over all replicas, than cores.
            cores = len(os.sched_getaffinity(0))
            environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // min(replicas, self.side_by_side))))
        return environment


@dataclass(frozen=True)
class FakeEngines:
    """An engine that answers deterministically without a model: for tests and for trying the pipeline out.

    Attributes:
        delay_sec: Seconds it takes for a request.
        max_in_flight: Requests it takes at once.
        journal: File that gets a line for every request.
    """

    delay_sec: float = 0.0
    max_in_flight: int = 64
    journal: Path | None = None

    def check(self, request: CreateBatchCompletionsV2Request) -> list[str]:
        """See `Engines.check`; it takes everything."""
        del request
        return []

    def identity(self, request: CreateBatchCompletionsV2Request) -> str:
        """See `Engines.identity`; it answers the same always."""
        del request
        return "fake"

    def make(
        self, request: CreateBatchCompletionsV2Request, needs: EngineNeeds, log: Callable[[str], None]
    ) -> Engine:
        """See `Engines.make`; the engine is the same for every request."""
        del request, needs
        log("the fake engine answers without a model")
        return FakeEngine(max_in_flight=self.max_in_flight, delay_sec=self.delay_sec, journal=self.journal)
