"""An engine of several nodes as an `Engine`: the leader's own part, which starts and ends with its members.

It does not know what the parts are. The leader's own is an `Engine` too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from batch_pipelines.engines.gang import NodeLost, Start
from batch_pipelines.engines.gang_leader import GangLeader
from batch_pipelines.engines.protocol import Engine, EngineDied, EngineReply, EngineRequest, EngineStartError

__all__ = ["GangEngine"]

_LOOK_SEC = 0.2
_REASON_SEC = 2.0  # how much later than the leader's own part a member may notice that it has lost its own


class GangEngine:
    """An engine whose other parts run on a gang's members; see `Engine`."""

    def __init__(self, part: Engine, gang: GangLeader, on_start: Callable[[Start], None]) -> None:
        """Take both sides; `start()` brings them up.

        Args:
            part: The leader's own part, which answers requests.
            gang: Whose members run the rest. They must be ready.
            on_start: Called with each start before `part` is started.
        """
        self._part = part
        self._gang = gang
        self._on_start = on_start
        self._lock = asyncio.Lock()
        self._start: Start | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def max_in_flight(self) -> int:
        """As its own part says."""
        return self._part.max_in_flight

    async def start(self) -> None:
        """Bring all parts up.

        Raises:
            NodeLost: A node is lost for good.
            EngineStartError: A part did not come up.
        """
        async with self._lock:
            if self._start is not None:
                return
            await self._end()
            start = await asyncio.to_thread(self._gang.start)
            try:
                self._on_start(start)
                await self._start_part(start)
            except BaseException:
                await self._end()
                raise
            self._start = start
            self._watch = asyncio.create_task(self._end_on_trouble(start))

    async def send(self, request: EngineRequest) -> EngineReply:
        """Answer one request; see `Engine.send`."""
        start = self._start
        if start is None:
            raise EngineDied(self._gang.lost or "the engine is not running")
        try:
            return await self._part.send(request)
        except EngineDied as death:
            if self._start is start:
                self._start = None
            why = await self._reason(start)
            if why is None:
                raise
            raise EngineDied(f"the engine died: {why}") from death

    async def stop(self) -> None:
        """End all parts."""
        async with self._lock:
            self._start = None
            await self._end()

    async def _start_part(self, start: Start) -> None:
        coming_up = asyncio.ensure_future(self._part.start())
        trouble = asyncio.ensure_future(self._trouble(start))
        try:
            await asyncio.wait([coming_up, trouble], return_when=asyncio.FIRST_COMPLETED)
            if trouble.done() and not coming_up.done():
                raise self._start_error(trouble.result())
            try:
                await coming_up
            except EngineStartError as error:
                why = await self._reason(start)
                if why is None:
                    raise
                raise self._start_error(f"{why}\nOf the first node: {error}") from error
        finally:
            for task in (coming_up, trouble):
                task.cancel()
            await asyncio.gather(coming_up, trouble, return_exceptions=True)

    def _start_error(self, why: str) -> EngineStartError:
        kind = EngineStartError if self._gang.lost is None else NodeLost
        return kind(f"the engine cannot be started: {why}")

    async def _trouble(self, start: Start) -> str:
        """Why a start is at its end, once it is."""
        while (why := self._gang.trouble(start.incarnation)) is None:
            await asyncio.sleep(_LOOK_SEC)
        return why

    async def _reason(self, start: Start) -> str | None:
        """Why a start is at its end, if the members know it or soon will."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._trouble(start), _REASON_SEC)
        return None

    async def _end_on_trouble(self, start: Start) -> None:
        # vLLM finds out only after minutes that a node is gone, and says that it is healthy until then.
        await self._trouble(start)
        if self._start is start:
            self._start = None
        await self._part.stop()

    async def _end(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        await asyncio.gather(self._part.stop(), asyncio.to_thread(self._gang.stop))
