"""A gang on loopback: members in threads, whose parts of the engine do nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batch_pipelines.engines.gang import GangPlace, Rendezvous, Start
from batch_pipelines.engines.gang_channel import Channel, Message, admit, introduce
from batch_pipelines.engines.gang_leader import GangLeader
from batch_pipelines.engines.gang_member import GangMember
from tests.support.processes import wait_until

HOST = "127.0.0.1"
SILENCE_SEC = 1.0
BEAT_SEC = 0.1


class IdlePart:
    """A part that runs until it is stopped, or the test lets it die."""

    def __init__(self) -> None:
        self.ended = False
        self.exit_code: int | None = None
        self.tail: list[str] = []

    def die(self, code: int, last: str) -> None:
        self.tail = ["loading", last]
        self.exit_code = code
        self.ended = True

    def stop(self) -> None:
        self.ended = True


class Member:
    """A member in a thread."""

    def __init__(
        self, rendezvous: Rendezvous, rank: int, *, work: Callable[[GangMember], None] | None = None
    ) -> None:
        self.starts: list[Start] = []
        self.parts: list[IdlePart] = []
        self.log: list[str] = []
        self.end: BaseException | None = None
        self.refuse_start: OSError | None = None
        self._work = work or (lambda member: member.serve(self._start, HOST))
        self._rendezvous = rendezvous
        self._rank = rank
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ended(self) -> BaseException | None:
        """Why it ended, once it has."""
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.end

    def _start(self, start: Start) -> IdlePart:
        self.starts.append(start)
        if self.refuse_start is not None:
            raise self.refuse_start
        self.parts.append(IdlePart())
        return self.parts[-1]

    def _run(self) -> None:
        try:
            with GangMember.join(
                self._rendezvous, self._rank, log=self.log.append, beat_sec=BEAT_SEC, silence_sec=SILENCE_SEC
            ) as member:
                self._work(member)
        except BaseException as error:
            self.end = error


class Announced:
    """A place whose announcement the test can read."""

    def __init__(self) -> None:
        self.said: list[Rendezvous] = []
        self.place = GangPlace(HOST, self.said.append)

    @property
    def rendezvous(self) -> Rendezvous:
        wait_until(lambda: bool(self.said))
        return self.said[-1]


@contextmanager
def led(nodes: int, log: list[str] | None = None) -> Iterator[tuple[GangLeader, Rendezvous]]:
    """A leader with short patience, and where it is."""
    announced = Announced()
    kept: list[str] = [] if log is None else log
    with GangLeader(
        announced.place, nodes, log=kept.append, beat_sec=BEAT_SEC, silence_sec=SILENCE_SEC
    ) as leader:
        yield leader, announced.rendezvous


@contextmanager
def raw_member(rendezvous: Rendezvous, rank: int, *, token: str | None = None) -> Iterator[Channel]:
    """A member's connection and nothing more: it gives no signs of life unless it is told to."""
    connection = socket.create_connection((rendezvous.address, rendezvous.port))
    channel = Channel(connection, beat_sec=BEAT_SEC, silence_sec=30)
    try:
        introduce(channel, token or rendezvous.token, rank)
        yield channel
    finally:
        channel.close()


@contextmanager
def raw_leader(token: str = "token") -> Iterator[tuple[Rendezvous, Callable[[], Channel]]]:
    """A leader that admits a member and does nothing more: where it is, and what admits."""
    with socket.create_server((HOST, 0)) as door:
        channels: list[Channel] = []

        def admit_one() -> Channel:
            channel = Channel(door.accept()[0], silence_sec=30)
            channels.append(channel)
            admit(channel, token)
            return channel

        try:
            yield Rendezvous(HOST, door.getsockname()[1], token), admit_one
        finally:
            for channel in channels:
                channel.close()


READY = Message(kind="ready")
