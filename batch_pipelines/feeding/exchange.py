"""How those who answer items reach the engine, without knowing who keeps it up."""

from collections.abc import Awaitable, Callable

from batch_pipelines.engines.protocol import EngineReply, EngineRequest

__all__ = ["Ask"]

Ask = Callable[[EngineRequest], Awaitable[EngineReply | None]]
"""Sends one request to an engine that is kept up; gives None if this very request kills engines."""
