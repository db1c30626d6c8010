"""What the steps of a job ask of a deployment's engine, whichever it is.

The engines are `resources.vllm_engines` and, for tests and for trying the pipeline out,
`resources.fake_engines`; which one a deployment has is decided in `resources.deployment`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.engines.protocol import Engine
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
        self, request: CreateBatchCompletionsV2Request, needs: EngineNeeds, *, check: Check, log: Log
    ) -> AbstractContextManager[Callable[[], Engine]]:
        """What makes an engine for the request, once its model is on this machine; it stays there meanwhile.

        Args:
            request: Names the model and how its engine is set up.
            needs: What the items ask of its set-up.
            check: Called while the model is fetched.
            log: Called with what is fetched, and with every line the engine prints.

        Raises:
            ValueError: The model cannot be had.
            ModelUnavailable: It cannot be had now.
        """
        ...
