"""The leader's side of a gang: waits for the members, starts and stops their parts, and knows who is lost.

It works in threads of its own, so that a busy event loop cannot make it look dead. How an engine uses it is
in `gang_engine`; what goes over the connections, in `gang_channel`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from batch_pipelines.engines.gang import GangPlace, NodeLost, Rendezvous, Start
from batch_pipelines.engines.gang_channel import Channel, ChannelClosed, Message
from batch_pipelines.engines.gang_door import Door
from batch_pipelines.engines.ports import free_port
from batch_pipelines.engines.protocol import EngineStartError

__all__ = ["GangLeader"]

_LOOK_SEC = 0.2
_STOP_SEC = 45.0  # a member's engine has its grace, and then some seconds to be killed
_FAREWELL_SEC = 5.0
_REASON_CHARS = 2000


@dataclass(slots=True)
class _Member:
    """A node that has joined."""

    channel: Channel
    place: str
    ready: bool = False
    stopped: int = 0
    ends: dict[int, str] = field(default_factory=dict)


class GangLeader:
    """Leads the other nodes of one engine. A context manager: leaving it in good order releases the members.

    Attributes:
        nodes: How many nodes the engine has, this one included.
    """

    def __init__(
        self,
        place: GangPlace,
        nodes: int,
        *,
        log: Callable[[str], None],
        beat_sec: float = 2.0,
        silence_sec: float = 15.0,
    ) -> None:
        """Set it up; entering it opens the door to the members.

        Args:
            place: Where this is.
            nodes: How many nodes the engine has, this one included; at least 2.
            log: Called with who comes and goes, from any thread.
            beat_sec: Seconds between two signs of life.
            silence_sec: Seconds without a sign of life after which a member counts as lost.
        """
        self.nodes = nodes
        self._place = place
        self._log = log
        self._beat_sec = beat_sec
        self._silence_sec = silence_sec
        self._token = secrets.token_hex(32)
        self._changed = threading.Condition()
        self._members: dict[int, _Member] = {}
        self._lost: str | None = None
        self._closing = False
        self._incarnation = 0
        self._start: Start | None = None
        self._door: Door | None = None

    def __enter__(self) -> Self:
        """Listen, and say where.

        Raises:
            OSError: This node does not have the address it should.
        """
        self._door = Door(
            self._place.address,
            self._token,
            welcome=self._welcome,
            log=self._log,
            beat_sec=self._beat_sec,
            silence_sec=self._silence_sec,
        )
        rendezvous = Rendezvous(self._place.address, self._door.port, self._token)
        try:
            self._place.announce(rendezvous)
        except BaseException:
            self.close()
            raise
        self._log(f"waiting for {self.nodes - 1} more nodes at {rendezvous.address}:{rendezvous.port}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the members go: this side has ended in good order, whatever came of its work."""
        self.close()

    @property
    def lost(self) -> str | None:
        """Why the gang is at its end, naming the node; None while all that have joined are there."""
        return self._lost

    def check(self) -> None:
        """Raise `NodeLost` if a member is lost."""
        if self._lost is not None:
            raise NodeLost(self._lost)

    def wait_until_ready(self, check: Callable[[], None], within_sec: float) -> None:
        """Wait until every member has joined and has its model.

        Args:
            check: Called a few times a second; what it raises ends the waiting.
            within_sec: How long members may take to join. How long a model may, is `check`'s matter.

        Raises:
            EngineStartError: A member did not join in time.
            NodeLost: One that had joined is lost.
        """
        until = time.monotonic() + within_sec
        while True:
            check()
            self.check()
            with self._changed:
                missing = [rank for rank in range(1, self.nodes) if rank not in self._members]
                if not missing and all(member.ready for member in self._members.values()):
                    return
                if missing and time.monotonic() >= until:
                    raise EngineStartError(f"{_ranks(missing)} did not join within {within_sec:g} s")
                self._changed.wait(_LOOK_SEC)

    def start(self) -> Start:
        """Have every member start its part of the engine anew; the leader's own is the caller's.

        Raises:
            NodeLost: A member is lost.
        """
        self.stop()
        self.check()
        self._incarnation += 1
        start = Start(self._incarnation, self.nodes, self._place.address, free_port(self._place.address))
        with self._changed:
            self._start = start
        self._tell(Message(kind="start", incarnation=start.incarnation, nodes=start.nodes, port=start.port))
        self.check()
        return start

    def stop(self) -> None:
        """Have every member end its part of the engine, and wait until it is gone."""
        with self._changed:
            if self._start is None:
                return
            incarnation = self._start.incarnation
            self._start = None
        self._tell(Message(kind="stop", incarnation=incarnation))
        until = time.monotonic() + _STOP_SEC
        with self._changed:
            while self._lost is None and not self._closing:
                late = [rank for rank, member in self._members.items() if member.stopped < incarnation]
                if not late:
                    return
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    self._note_lost(f"the engine on {self._named(late)} does not end")

    def trouble(self, incarnation: int) -> str | None:
        """Why a start is at its end as far as the members know, naming the node; None if it is not."""
        if self._lost is not None:
            return self._lost
        with self._changed:
            ends = [
                member.ends[incarnation] for member in self._members.values() if incarnation in member.ends
            ]
        return ends[0] if ends else None

    def close(self) -> None:
        """Let the members go and close every connection. It may be called again."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            members = list(self._members.values())
            self._changed.notify_all()
        for member in members:
            with contextlib.suppress(ChannelClosed):
                member.channel.send(Message(kind="done"))
        if self._door is not None:
            self._door.close()

    def _welcome(self, rank: int, channel: Channel, host: str) -> None:
        member = self._take_in(rank, channel, host)
        if member is not None:
            self._listen_to(member)

    def _take_in(self, rank: int, channel: Channel, host: str) -> _Member | None:
        with self._changed:
            why = None
            if not 1 <= rank < self.nodes:
                why = f"there is no node {rank} among {self.nodes}"
            elif rank in self._members:
                why = f"node {rank} has joined before; a lost node is not replaced"
            elif self._closing:
                why = "the work is done"
            if why is None:
                member = self._members[rank] = _Member(channel, f"node {rank} ({host})")
        if why is not None:
            self._log(f"a node at {host} was refused: {why}")
            with contextlib.suppress(ChannelClosed):
                channel.send(Message(kind="refused", why=why))
            return None
        channel.keep_alive()
        self._log(f"{member.place} has joined")
        return member

    def _listen_to(self, member: _Member) -> None:
        closing_at: float | None = None
        try:
            # Told that all is done, a member closes first: a close here, with a sign of life of its unread,
            # would take back what it was told.
            while closing_at is None or time.monotonic() < closing_at + _FAREWELL_SEC:
                if closing_at is None and self._closing:
                    closing_at = time.monotonic()
                message = member.channel.receive(_LOOK_SEC)
                if message is not None:
                    self._hear(member, message)
        except ChannelClosed as closed:
            with self._changed:
                if not self._closing:
                    self._note_lost(f"{member.place} is lost: it {closed}")

    def _hear(self, member: _Member, message: Message) -> None:
        with self._changed:
            match message.kind:
                case "ready":
                    member.ready = True
                    self._log(f"{member.place} is ready")
                case "started":
                    self._log(f"the engine is starting on {member.place}")
                case "stopped":
                    member.stopped = max(member.stopped, message.incarnation)
                case "ended":
                    member.ends[message.incarnation] = _end_of(member, message)
                case "failed":
                    self._note_lost(f"{member.place} gave up: {message.why[:_REASON_CHARS]}")
                case _:
                    self._note_lost(f"{member.place} said {message.kind}, which is not a member's to say")
            self._changed.notify_all()

    def _tell(self, message: Message) -> None:
        with self._changed:
            members = list(self._members.values())
        for member in members:
            try:
                member.channel.send(message)
            except ChannelClosed as closed:
                with self._changed:
                    self._note_lost(f"{member.place} is lost: it {closed}")

    def _note_lost(self, why: str) -> None:
        """Called with the lock held; the first reason counts, the rest follow from it."""
        if self._lost is None:
            self._lost = why
            self._log(why)
        self._changed.notify_all()

    def _named(self, ranks: Iterable[int]) -> str:
        return ", ".join(self._members[rank].place for rank in ranks)


def _end_of(member: _Member, message: Message) -> str:
    what = f"its part on {member.place} exited with code {message.code}"
    last = next((line for line in reversed(message.lines) if line.strip()), "")
    return f"{what}: {message.why or last}"[:_REASON_CHARS]


def _ranks(ranks: list[int]) -> str:
    return f"node{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
