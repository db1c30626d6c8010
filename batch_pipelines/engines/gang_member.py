"""A member's side of a gang: joins the leader, runs this node's part of the engine for it, and ends with it.

What that part is, is for the caller to say: a `Part` is started for each start of the engine.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from batch_pipelines.engines.gang import Rendezvous, Start
from batch_pipelines.engines.gang_channel import Channel, ChannelClosed, Message, introduce

__all__ = ["GangMember", "LeaderGone", "Part", "WorkDone"]

_LOOK_SEC = 0.2
_CONNECT_SEC = 10.0
_LAST_LINES = 40
_LINE_CHARS = 500


class LeaderGone(Exception):
    """The leader is gone, or does not want this member; the message says why."""


class WorkDone(Exception):
    """The leader has ended in good order: there is nothing to do any more."""


class Part(Protocol):
    """A node's part of a running engine; `batch_pipelines.engines.process.EngineProcess` is one."""

    @property
    def ended(self) -> bool:
        """Whether all of it is gone."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Its exit code, once it has ended."""
        ...

    @property
    def tail(self) -> list[str]:
        """The last lines it printed, oldest first."""
        ...

    def stop(self) -> None:
        """End it and wait until it is gone."""
        ...


class GangMember:
    """A node that has joined its leader. A context manager: left, the connection is closed."""

    def __init__(self, channel: Channel, log: Callable[[str], None]) -> None:
        """See `join`."""
        self._channel = channel
        self._log = log

    @classmethod
    def join(
        cls,
        rendezvous: Rendezvous,
        rank: int,
        *,
        log: Callable[[str], None],
        beat_sec: float = 2.0,
        silence_sec: float = 15.0,
    ) -> Self:
        """Connect to the leader.

        Args:
            rendezvous: Where it is.
            rank: Of this node, from 1.
            log: Called with what happens.
            beat_sec: Seconds between two signs of life.
            silence_sec: Seconds without a sign of life after which the leader counts as gone.

        Raises:
            LeaderGone: It is not there, or not yet.
        """
        where = f"{rendezvous.address}:{rendezvous.port}"
        try:
            connection = socket.create_connection((rendezvous.address, rendezvous.port), _CONNECT_SEC)
        except OSError as error:
            raise LeaderGone(f"nobody answers at {where}: {error.strerror or error}") from error
        channel = Channel(connection, beat_sec=beat_sec, silence_sec=silence_sec)
        try:
            introduce(channel, rendezvous.token, rank)
            channel.keep_alive()
        except BaseException as error:
            channel.close()
            if isinstance(error, ChannelClosed):
                raise LeaderGone(f"whoever answers at {where} is not the leader: it {error}") from error
            raise
        log(f"joined the leader at {where} as node {rank}")
        return cls(channel, log)

    def __enter__(self) -> Self:
        """Nothing is left to do: `join` has connected."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._channel.close()

    def check(self) -> None:
        """Look whether the leader still wants this node; to be called while something else takes long.

        Raises:
            WorkDone: It does not: all is done.
            LeaderGone: It is gone.
        """
        message = self._receive(0.0)
        if message is not None:
            raise LeaderGone(f"the leader said {message.kind} too early")

    def fail(self, why: str) -> None:
        """Tell the leader that this node can do nothing."""
        with contextlib.suppress(ChannelClosed):
            self._channel.send(Message(kind="failed", why=why[: _LAST_LINES * _LINE_CHARS]))

    def wait_for_the_end(self, within_sec: float) -> None:
        """After `fail`: wait until the leader has seen to it.

        Raises:
            WorkDone: It has.
            LeaderGone: It is gone, or does not within that time.
        """
        until = time.monotonic() + within_sec
        while time.monotonic() < until:
            self._receive(_LOOK_SEC)  # it may still say that the engine should start, or stop
        raise LeaderGone("the leader did not say that all is done")

    def serve(self, start_part: Callable[[Start], Part], address: str) -> None:
        """Run this node's part of the engine whenever the leader says so. It is gone when this ends.

        Args:
            start_part: Starts it; an `OSError` or `ValueError` says that it cannot be started.
            address: The leader's.

        Raises:
            WorkDone: All is done.
            LeaderGone: The leader is gone.
        """
        self._send(Message(kind="ready"))
        part: Part | None = None
        incarnation = 0
        try:
            while True:
                message = self._receive(_LOOK_SEC)
                if message is None:
                    if part is not None and part.ended:
                        self._send(_end(incarnation, part))
                        part = None
                elif message.kind == "start":
                    _stop(part)
                    part = None
                    incarnation = message.incarnation
                    start = Start(incarnation, message.nodes, address, message.port)
                    self._log(f"start {incarnation} of the engine")
                    try:
                        part = start_part(start)
                    except (OSError, ValueError) as error:
                        self._send(Message(kind="ended", incarnation=incarnation, why=str(error)))
                    else:
                        self._send(Message(kind="started", incarnation=incarnation))
                elif message.kind == "stop":
                    self._log("the leader ends the engine")
                    _stop(part)
                    part = None
                    self._send(Message(kind="stopped", incarnation=message.incarnation))
                else:
                    raise LeaderGone(f"the leader said {message.kind}, which is not a leader's to say")
        except (LeaderGone, WorkDone):
            raise
        except BaseException as error:
            self.fail(str(error) or type(error).__name__)  # before the part takes its time to end
            raise
        finally:
            _stop(part)

    def _receive(self, within_sec: float) -> Message | None:
        try:
            message = self._channel.receive(within_sec)
        except ChannelClosed as closed:
            raise LeaderGone(f"the leader is gone: it {closed}") from closed
        if message is not None and message.kind == "done":
            self._channel.close()  # it waits for that
            raise WorkDone("the leader says that all is done")
        if message is not None and message.kind == "refused":
            raise LeaderGone(f"the leader refuses this node: {message.why}")
        return message

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed as closed:
            raise LeaderGone(f"the leader is gone: it {closed}") from closed


def _stop(part: Part | None) -> None:
    if part is not None:
        part.stop()


def _end(incarnation: int, part: Part) -> Message:
    lines = [line[:_LINE_CHARS] for line in part.tail[-_LAST_LINES:]]
    return Message(kind="ended", incarnation=incarnation, code=part.exit_code, lines=lines)
