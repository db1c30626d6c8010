"""The engine that answers without a model."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.engines.gang import GangPlace, Start
from batch_pipelines.engines.gang_engine import GangEngine
from batch_pipelines.engines.gang_member import Part
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import Engine
from batch_pipelines.hardware.choose import Hardware, HardwareInvalid, infer_hardware
from batch_pipelines.hardware.gpus import HardwareTable, load_table
from batch_pipelines.planning import ModelSeen
from batch_pipelines.preflight.protocol import NoPreflight, Preflight
from batch_pipelines.stages.validate import EngineFindings
from resources.engines import Check, Log
from resources.gangs import led_gang, watched

__all__ = ["FakeEngines"]


@dataclass(frozen=True)
class FakeEngines:
    """An engine that answers deterministically without a model: for tests and for trying the pipeline out.

    Attributes:
        delay_sec: Seconds it takes for a request.
        max_in_flight: Requests it takes at once.
        journal: File that gets a line for every request.
        table: GPU types and nodes.
        enforce_hardware: Whether a request is refused whose hardware there is not.
        join_timeout_sec: Seconds the other nodes of an engine may take to join the first.
    """

    delay_sec: float = 0.0
    max_in_flight: int = 64
    journal: Path | None = None
    table: HardwareTable = field(default_factory=load_table)
    enforce_hardware: bool = False
    join_timeout_sec: float = 1800.0

    def check(self, request: CreateBatchCompletionsV2Request) -> EngineFindings:
        """See `Engines.check`; it takes everything, on hardware there is."""
        try:
            if self.enforce_hardware:
                self.hardware_for(request)
        except HardwareInvalid as invalid:
            return EngineFindings(invalid.errors)
        return EngineFindings()

    def look(self, request: CreateBatchCompletionsV2Request) -> ModelSeen:
        """See `Engines.look`; there is none."""
        del request
        return ModelSeen("the fake engine, which needs none", None)

    def hardware_for(self, request: CreateBatchCompletionsV2Request) -> Hardware:
        """See `Engines.hardware_for`; it takes GPUs only if they are asked for."""
        gpus = bool(request.gpus or request.gpu_type)
        return infer_hardware(request, None, self.table, gpus_available=gpus)

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
        self,
        request: CreateBatchCompletionsV2Request,
        needs: EngineNeeds,
        hardware: Hardware | None = None,
        *,
        gang: GangPlace | None = None,
        check: Check,
        log: Log,
    ) -> Iterator[Callable[[], Engine]]:
        """See `Engines.ready`; the engine is the same for every request."""
        del request, needs
        log("the fake engine answers without a model")
        with led_gang(gang, hardware, log) as leader:
            if leader is None:
                yield self._engine
                return
            leader.wait_until_ready(watched(leader, check), self.join_timeout_sec)
            yield lambda: GangEngine(self._engine(), leader, lambda _: None)

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
        """See `Engines.member`; such a part does nothing, and only has to be there."""
        del request, needs, hardware, rank, address, check
        log("the fake engine needs nothing of its other nodes")
        yield lambda _: _IdlePart()

    def _engine(self) -> FakeEngine:
        return FakeEngine(max_in_flight=self.max_in_flight, delay_sec=self.delay_sec, journal=self.journal)


class _IdlePart:
    """Runs until it is stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    @property
    def ended(self) -> bool:
        return self._stopped.is_set()

    @property
    def exit_code(self) -> int | None:
        return 0 if self.ended else None

    @property
    def tail(self) -> list[str]:
        return []

    def stop(self) -> None:
        self._stopped.set()
