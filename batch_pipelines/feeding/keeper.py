"""Keeps an engine up while items need it, and finds the item that kills it.

An engine starts with the first request and starts anew after a death. A request that was in flight
at two deaths is suspect and is sent alone. If the engine dies on it then, a canary follows, a request
that no sound engine dies of: if that is answered, the suspect is at fault, and only that one; if not,
the engine is. An engine that keeps dying without answering anything is given up.
"""

import asyncio
from collections.abc import Callable

from batch_pipelines.engines.protocol import Engine, EngineDied, EngineError, EngineReply, EngineRequest

__all__ = ["EngineKeeper"]

_DEATHS_TO_SUSPECT = 2
_FRUITLESS_DEATHS = 6


class EngineKeeper:
    """Sends requests to an engine that may die.

    Attributes:
        starts: How often the engine was started.
        deaths: How often it died.
    """

    def __init__(self, engine: Engine, *, canary: EngineRequest, on_event: Callable[[str], None]) -> None:
        """See the class.

        Args:
            engine: Not started yet.
            canary: A small request that no sound engine dies of.
            on_event: Told of starts and deaths, a sentence each.
        """
        self.starts = 0
        self.deaths = 0
        self._engine = engine
        self._canary = canary
        self._on_event = on_event
        self._up = False
        self._starting = asyncio.Lock()
        self._given_up: EngineError | None = None
        self._deaths_since_reply = 0
        self._in_flight = 0
        self._drained = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._one_suspect = asyncio.Lock()

    async def answer(self, request: EngineRequest) -> EngineReply | None:
        """The engine's reply, or None if this very request makes the engine die.

        Raises:
            EngineStartError: The engine does not come up.
            EngineDied: The engine keeps dying without answering anything.
        """
        for _ in range(_DEATHS_TO_SUSPECT):
            try:
                return await self._send_among_others(request)
            except EngineDied:
                if self._given_up is not None:
                    raise
        return await self._try_alone(request)

    async def stop(self) -> None:
        """Stop the engine, if it runs."""
        self._up = False
        await self._engine.stop()

    async def _send_among_others(self, request: EngineRequest) -> EngineReply:
        while not self._open.is_set():
            await self._open.wait()
        self._in_flight += 1
        try:
            return await self._send(request)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._drained.set()

    async def _try_alone(self, request: EngineRequest) -> EngineReply | None:
        async with self._one_suspect:
            self._open.clear()
            try:
                while self._in_flight:
                    self._drained.clear()
                    await self._drained.wait()
                while True:
                    for suspect in (request, self._canary):
                        try:
                            reply = await self._send(suspect)
                        except EngineDied:
                            if self._given_up is not None:
                                raise
                            continue
                        return reply if suspect is request else None
            finally:
                self._open.set()

    async def _send(self, request: EngineRequest) -> EngineReply:
        if not self._up:
            await self._start()
        incarnation = self.starts
        try:
            reply = await self._engine.send(request)
        except EngineDied as death:
            self._note_death(death, incarnation)
            raise
        self._deaths_since_reply = 0
        return reply

    async def _start(self) -> None:
        async with self._starting:
            if self._given_up is not None:
                raise self._given_up
            if self._up:
                return
            try:
                await self._engine.start()
            except EngineError as error:
                self._given_up = error
                raise
            self.starts += 1
            self._up = True
            self._on_event(
                "engine ready" if self.starts == 1 else f"engine ready again (start {self.starts})"
            )

    def _note_death(self, death: EngineDied, incarnation: int) -> None:
        if not self._up or incarnation != self.starts:
            return  # a death already noted, by another request that was in flight
        self._up = False
        self.deaths += 1
        self._on_event(f"engine died: {death}")
        self._deaths_since_reply += 1
        if self._deaths_since_reply >= _FRUITLESS_DEATHS:
            self._given_up = EngineDied(
                f"the engine died {_FRUITLESS_DEATHS} times without answering: {death}"
            )
            raise self._given_up from death
