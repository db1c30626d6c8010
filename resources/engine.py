"""The engine resource: which engine answers, and what the deployment sets for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import dagster as dg
from pydantic import Field

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.protocol import Engine, EngineSpec
from batch_pipelines.models.registry import resolve_model

__all__ = ["EngineResource", "FakeEngineResource", "VLLMResource"]


class EngineResource(dg.ConfigurableResource[Engine], ABC):
    """Makes an engine for a request."""

    @abstractmethod
    def make(self, request: CreateBatchCompletionsV2Request, log: Callable[[str], None]) -> Engine:
        """An engine for the request, not started yet.

        Args:
            request: Names the model and how its engine is set up.
            log: Called with every line the engine prints, from any thread.
        """


class VLLMResource(EngineResource):
    """vLLM as a child process of the step that needs it."""

    models_dir: str = Field(description="Folder of model folders, found by name.")
    # A bare dict: Dagster refuses nulls in a dict[str, Any].
    engine_args: dict = Field(default={}, description="Engine arguments for what a request leaves unset.")  # type: ignore[type-arg]
    environment: dict[str, str] = Field(default={}, description="Environment variables of the engine.")
    start_timeout_sec: float = Field(description="Seconds it may take to load its model.")

    def make(self, request: CreateBatchCompletionsV2Request, log: Callable[[str], None]) -> Engine:
        """An engine for the request, not started yet."""
        from batch_pipelines.engines.vllm_server import VLLMServer

        config = request.engine_config
        spec = EngineSpec(
            model=resolve_model(config.model, config.checkpoint_path, models_dir=Path(self.models_dir)),
            served_model_name=config.served_model_name or config.model,
            model_config=config,
            defaults=self.engine_args,
            environment=self.environment,
            log=log,
        )
        return VLLMServer(spec, start_timeout_sec=self.start_timeout_sec)


class FakeEngineResource(EngineResource):
    """Answers deterministically without a model: for tests and for trying the pipeline out."""

    delay_sec: float = Field(default=0.0, description="Seconds it takes for a request.")
    max_in_flight: int = Field(default=64, description="Requests it takes at once.")
    journal: str | None = Field(default=None, description="File that gets a line for every request.")

    def make(self, request: CreateBatchCompletionsV2Request, log: Callable[[str], None]) -> Engine:
        """An engine, not started yet; it is the same for every request."""
        from batch_pipelines.engines.fake import FakeEngine

        del request
        log("the fake engine answers without a model")
        return FakeEngine(
            max_in_flight=self.max_in_flight,
            delay_sec=self.delay_sec,
            journal=Path(self.journal) if self.journal else None,
        )
