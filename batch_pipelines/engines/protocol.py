"""The contract between the inference loop and whatever answers its requests.

Only the contract belongs here: types, errors and the protocol. How an engine is started, and what its
arguments are called, is the matter of each implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from batch_pipelines.engines.needs import NO_NEEDS, EngineNeeds

if TYPE_CHECKING:
    from batch_pipelines.api.model_config import BatchCompletionsModelConfig


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request: a path (`/v1/chat/completions` or `/v1/completions`) and its JSON bytes."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class EngineReply:
    """What the engine answered: an HTTP status and the bytes of the answer."""

    status: int
    body: bytes


class EngineError(Exception):
    """Base of everything an engine raises."""


class EngineDied(EngineError):
    """The engine went away with requests in flight; `start()` brings up a new one."""


class EngineStartError(EngineError):
    """The engine did not come up; the message carries the last lines of its log."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Everything an engine needs to know of the job it serves.

    Attributes:
        model: A folder with a checkpoint, or a name the engine can download.
        served_model_name: The name requests carry in their `model` field.
        model_config: The request's engine settings.
        defaults: The deployment's engine settings, used where the request leaves a field unset.
        needs: What the job's items ask of its set-up.
        environment: Variables for the engine's process, on top of those it inherits.
        log: Called with every line the engine prints, without its line end. It may be called from any thread.
    """

    model: str
    served_model_name: str
    model_config: BatchCompletionsModelConfig
    defaults: Mapping[str, object] = field(default_factory=dict)
    needs: EngineNeeds = NO_NEEDS
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Callable[[str], None] = print


@runtime_checkable
class Engine(Protocol):
    """Answers requests until it is stopped or dies."""

    @property
    def max_in_flight(self) -> int:
        """How many requests in flight keep the engine full."""
        ...

    async def start(self) -> None:
        """Bring the engine up; nothing happens when it is up, and after a death a new one starts.

        Raises:
            EngineStartError: The engine did not come up.
        """
        ...

    async def send(self, request: EngineRequest) -> EngineReply:
        """Answer one request; every HTTP status is a reply, not an error.

        Raises:
            EngineDied: The engine is not running, or went away before it answered.
        """
        ...

    async def stop(self) -> None:
        """End the engine; once this returns nothing of it is left running. It may be called again."""
        ...
