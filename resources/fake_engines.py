"""The engine that answers without a model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import Engine
from batch_pipelines.planning import ModelSeen
from batch_pipelines.preflight.protocol import NoPreflight, Preflight
from batch_pipelines.stages.validate import EngineFindings
from resources.engines import Check, Log

__all__ = ["FakeEngines"]


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

    def check(self, request: CreateBatchCompletionsV2Request) -> EngineFindings:
        """See `Engines.check`; it takes everything."""
        del request
        return EngineFindings()

    def look(self, request: CreateBatchCompletionsV2Request) -> ModelSeen:
        """See `Engines.look`; there is none."""
        del request
        return ModelSeen("the fake engine, which needs none", None)

    def identity(self, request: CreateBatchCompletionsV2Request) -> str:
        """See `Engines.identity`; it answers the same always."""
        del request
        return "fake"

    def preflight(self, request: CreateBatchCompletionsV2Request) -> Preflight:
        """See `Engines.preflight`; there is no model to check against."""
        del request
        return NoPreflight()

    @contextmanager
    def ready(
        self, request: CreateBatchCompletionsV2Request, needs: EngineNeeds, *, check: Check, log: Log
    ) -> Iterator[Callable[[], Engine]]:
        """See `Engines.ready`; the engine is the same for every request."""
        del request, needs, check
        log("the fake engine answers without a model")
        yield lambda: FakeEngine(
            max_in_flight=self.max_in_flight, delay_sec=self.delay_sec, journal=self.journal
        )
