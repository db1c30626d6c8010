"""What the steps of a job ask of a deployment's engine, whichever it is.

The engines are `resources.vllm_engines` and, for tests and for trying the pipeline out,
`resources.fake_engines`; which one a deployment has is decided in `resources.deployment`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.gang import GangPlace, Start
from batch_pipelines.engines.gang_member import Part
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import Engine
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.planning import ModelSeen
from batch_pipelines.preflight.protocol import Preflight
from batch_pipelines.stages.validate import EngineFindings

__all__ = ["Check", "Engines", "Log"]

Check = Callable[[], None]
"""Called about once a second by what takes long; what it raises ends it."""
Log = Callable[[str], None]
"""Called with a line, from any thread."""


class Engines(Protocol):
    """Checks requests against an engine, and makes the engine of a replica."""

    def check(self, request: CreateBatchCompletionsV2Request) -> EngineFindings:
        """Check what can be told without starting an engine: the model, its settings, the hardware.

        Raises:
            ModelUnavailable: The model cannot be looked at now; another attempt may succeed.
        """
        ...

    def look(self, request: CreateBatchCompletionsV2Request) -> ModelSeen:
        """What can be told of the request's model.

        Raises:
            ValueError: It cannot be had.
            ModelUnavailable: It cannot be looked at now.
        """
        ...

    def hardware_for(self, request: CreateBatchCompletionsV2Request) -> Hardware:
        """What one replica of a request runs on.

        Raises:
            HardwareInvalid: Nothing this deployment has will do.
            ValueError: The model cannot be had.
            ModelUnavailable: It cannot be looked at now.
        """
        ...

    def identity(self, request: CreateBatchCompletionsV2Request) -> str:
        """What tells this engine, as set up and with these weights, from any that may answer otherwise.

        Raises:
            ModelUnavailable: The model cannot be looked at now.
        """
        ...

    def preflight(self, request: CreateBatchCompletionsV2Request) -> Preflight:
        """Checks items against the request's model.

        Raises:
            ModelUnavailable: The model cannot be looked at now.
        """
        ...

    def ready(
        self,
        request: CreateBatchCompletionsV2Request,
        needs: EngineNeeds,
        hardware: Hardware | None = None,
        *,
        gang: GangPlace | None = None,
        check: Check,
        log: Log,
    ) -> AbstractContextManager[Callable[[], Engine]]:
        """What makes an engine for the request, once its model is on this machine; it stays there meanwhile.

        An engine of several nodes is made by the first of them, once all have joined it.

        Args:
            request: Names the model and how its engine is set up.
            needs: What the items ask of its set-up.
            hardware: What the replica runs on; None for this machine as it is.
            gang: Where the other nodes of the engine find this one; None if it has no others.
            check: Called while the model is fetched, and other nodes are waited for.
            log: Called with what is fetched, and with every line the engine prints.

        Raises:
            ValueError: The model cannot be had.
            ModelUnavailable: It cannot be had now.
            NodeLost: Another node of the engine did not join, or is lost.
            EngineStartError: The hardware is of several nodes, and there is no `gang`.
        """
        ...

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
    ) -> AbstractContextManager[Callable[[Start], Part]]:
        """What starts a node's part of the engine that `ready` makes on the first node; see there.

        Args:
            request: As for the first node.
            needs: As for the first node.
            hardware: As for the first node.
            rank: Of this node, from 1.
            address: This node's IP address.
            check: Called while the model is fetched.
            log: Called with what is fetched, and with every line the engine's part prints.

        Raises:
            ValueError: The model cannot be had.
            ModelUnavailable: It cannot be had now.
        """
        ...
