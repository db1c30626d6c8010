"""A gang's leader and its members: joining, starting, losing each other, ending."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from batch_pipelines.engines.gang import GangPlace, NodeLost, Rendezvous
from batch_pipelines.engines.gang_channel import Channel, ChannelClosed, Message
from batch_pipelines.engines.gang_leader import GangLeader
from batch_pipelines.engines.gang_member import GangMember, LeaderGone, WorkDone
from batch_pipelines.engines.protocol import EngineStartError
from tests.support.gangs import HOST, READY, SILENCE_SEC, Announced, Member, led, raw_leader, raw_member
from tests.support.processes import wait_until


def nothing() -> None:
    """A check that finds nothing."""


def trouble_of(leader: GangLeader, incarnation: int) -> str:
    wait_until(lambda: leader.trouble(incarnation) is not None)
    return leader.trouble(incarnation) or ""


def test_all_start_together_again_and_again_until_the_work_is_done() -> None:
    with led(3) as (leader, rendezvous):
        members = [Member(rendezvous, 1), Member(rendezvous, 2)]
        leader.wait_until_ready(nothing, 10)
        first = leader.start()
        wait_until(lambda: all(member.starts == [first] for member in members))
        second = leader.start()
        wait_until(lambda: all(member.starts == [first, second] for member in members))
        assert (first.incarnation, second.incarnation) == (1, 2)
        assert second.port != first.port
        assert all(member.parts[0].ended and not member.parts[1].ended for member in members)
        assert leader.trouble(2) is None
    for member in members:
        assert isinstance(member.ended(), WorkDone)
        assert member.parts[1].ended


def test_leader_listens_at_its_own_address_only() -> None:
    with led(2) as (_, rendezvous), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", rendezvous.port))


def test_address_that_is_not_this_nodes_is_an_error() -> None:
    place = GangPlace("192.0.2.1", lambda _: None)
    with pytest.raises(OSError, match="assign requested address"), GangLeader(place, 2, log=lambda _: None):
        pass


def test_missing_nodes_are_named_and_the_check_is_called_meanwhile() -> None:
    calls: list[float] = []
    with led(4) as (leader, rendezvous):
        member = Member(rendezvous, 2)
        with pytest.raises(EngineStartError, match=r"^nodes 1, 3 did not join within 1 s$"):
            leader.wait_until_ready(lambda: calls.append(time.monotonic()), 1.0)
    assert len(calls) > 2
    assert isinstance(member.ended(), WorkDone)


def test_what_the_check_raises_ends_the_waiting() -> None:
    def past_deadline() -> None:
        raise ZeroDivisionError

    with led(2) as (leader, _), pytest.raises(ZeroDivisionError):
        leader.wait_until_ready(past_deadline, 60)


def test_slow_member_is_waited_for_once_it_has_joined() -> None:
    with led(2) as (leader, rendezvous), raw_member(rendezvous, 1) as channel:
        channel.keep_alive()
        checks: list[int] = []

        def check() -> None:
            checks.append(1)
            if len(checks) == 8:
                channel.send(READY)

        leader.wait_until_ready(check, 0.2)
        assert len(checks) >= 8


def test_wrong_token_is_refused_and_the_right_member_still_joins() -> None:
    log: list[str] = []
    with led(2, log) as (leader, rendezvous):
        with pytest.raises(ChannelClosed), raw_member(rendezvous, 1, token="guessed"):
            pass
        wait_until(lambda: "a connection from 127.0.0.1 was refused: it does not know the token" in log)
        member = Member(rendezvous, 1)
        leader.wait_until_ready(nothing, 10)
    assert isinstance(member.ended(), WorkDone)
    assert rendezvous.token not in "".join(log)


def test_member_trusts_no_leader_without_the_token_and_does_not_tell_it() -> None:
    with socket.create_server((HOST, 0)) as door:
        stranger = Rendezvous(HOST, door.getsockname()[1], "the real token")
        member = Member(stranger, 1)
        connection, _ = door.accept()
        with connection:
            connection.sendall(b'{"kind":"who","nonce":"x"}\n')
            heard = connection.recv(4096)
            connection.sendall(b'{"kind":"welcome","proof":"made up"}\n')
            assert isinstance(member.ended(), LeaderGone)
    assert str(member.end).endswith("is not the leader: it does not know the token")
    assert b"hello" in heard
    assert b"the real token" not in heard


@pytest.mark.parametrize(
    ("rank", "why"), [(1, "has joined before"), (7, "no node 7 among 2"), (0, "no node 0")]
)
def test_node_that_does_not_belong_is_told_so(rank: int, why: str) -> None:
    with led(2) as (leader, rendezvous):
        first = Member(rendezvous, 1)
        leader.wait_until_ready(nothing, 10)
        other = Member(rendezvous, rank)
        assert isinstance(other.ended(), LeaderGone)
        assert why in str(other.end)
        assert leader.lost is None
    assert isinstance(first.ended(), WorkDone)


def _killed(channel: Channel) -> None:
    channel.close()


def _talks_nonsense(channel: Channel) -> None:
    channel._connection.sendall(b"GET / HTTP/1.1\r\n")  # a peer that keeps to no protocol


def _talks_on_and_on(channel: Channel) -> None:
    channel._connection.sendall(b"x" * 300_000)


def _orders(channel: Channel) -> None:
    channel.send(Message(kind="start"))


def _gives_up(channel: Channel) -> None:
    channel.send(Message(kind="failed", why="no space left on device"))


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (_killed, "is lost: it closed the connection"),
        (nothing, f"is lost: it gave no sign of life for {SILENCE_SEC:g} s"),
        (_talks_nonsense, "is lost: it sent what is no message"),
        (_talks_on_and_on, "is lost: it sent a message that is too long"),
        (_orders, "said start, which is not a member's to say"),
        (_gives_up, "gave up: no space left on device"),
    ],
)
def test_lost_member_ends_the_gang_with_a_reason_that_names_it(
    does: Callable[..., None], reason: str
) -> None:
    with led(3) as (leader, rendezvous):
        other = Member(rendezvous, 1)
        with raw_member(rendezvous, 2) as channel:
            channel.send(READY)
            leader.wait_until_ready(nothing, 10)
            start = leader.start()
            began = time.monotonic()
            if does is not nothing:
                does(channel)
            assert trouble_of(leader, start.incarnation) == f"node 2 (127.0.0.1) {reason}"
            assert time.monotonic() - began < SILENCE_SEC + 2
        with pytest.raises(NodeLost, match="node 2"):
            leader.check()
        with pytest.raises(NodeLost, match="node 2"):
            leader.start()
        wait_until(lambda: bool(other.parts) and other.parts[0].ended)
    assert isinstance(other.ended(), WorkDone)


def _dies(channel: Channel) -> None:
    channel.close()


def _falls_silent(channel: Channel) -> None:
    del channel


@pytest.mark.parametrize(
    ("does", "reason"),
    [(_dies, "closed the connection"), (_falls_silent, f"gave no sign of life for {SILENCE_SEC:g} s")],
)
def test_lost_leader_ends_a_member_and_its_part(does: Callable[[Channel], None], reason: str) -> None:
    with raw_leader() as (rendezvous, admit_one):
        member = Member(rendezvous, 1)
        channel = admit_one()
        channel.send(Message(kind="start", incarnation=1, nodes=2, port=1234))
        wait_until(lambda: bool(member.parts))
        began = time.monotonic()
        does(channel)
        assert isinstance(member.ended(), LeaderGone)
        assert time.monotonic() - began < SILENCE_SEC + 2
    assert str(member.end).startswith(f"the leader is gone: it {reason}")
    assert member.parts[0].ended


def test_leader_that_is_gone_before_anyone_joins_is_not_there() -> None:
    with raw_leader() as (rendezvous, _):
        pass
    member = Member(rendezvous, 1)
    assert isinstance(member.ended(), LeaderGone)
    assert "nobody answers" in str(member.end)


def test_part_that_dies_is_told_with_its_last_words_and_can_be_started_anew() -> None:
    with led(2) as (leader, rendezvous):
        member = Member(rendezvous, 1)
        leader.wait_until_ready(nothing, 10)
        start = leader.start()
        wait_until(lambda: bool(member.parts))
        member.parts[0].die(1, "RuntimeError: out of memory")
        assert trouble_of(leader, start.incarnation) == (
            "its part on node 1 (127.0.0.1) exited with code 1: RuntimeError: out of memory"
        )
        again = leader.start()
        wait_until(lambda: len(member.parts) == 2)
        assert leader.trouble(again.incarnation) is None
        assert leader.lost is None
    assert isinstance(member.ended(), WorkDone)


def test_part_that_cannot_be_started_is_told() -> None:
    with led(2) as (leader, rendezvous):
        member = Member(rendezvous, 1)
        member.refuse_start = OSError("no such program")
        leader.wait_until_ready(nothing, 10)
        assert "no such program" in trouble_of(leader, leader.start().incarnation)


def test_member_that_is_told_to_end_says_so_before_its_part_has_ended() -> None:
    class Told(BaseException):
        pass

    stopped_after: list[str | None] = []

    class SlowPart:
        ended = False
        exit_code = None
        tail: list[str] = []  # noqa: RUF012 - never changed

        def stop(self) -> None:
            wait_until(lambda: leader.lost is not None)
            stopped_after.append(leader.lost)

    def start_part(_start: object) -> SlowPart:
        return SlowPart()

    def tell() -> bool:
        raise Told("SIGTERM")

    class Interrupted(SlowPart):
        @property
        def ended(self) -> bool:  # type: ignore[override]
            return tell()

    with led(2) as (leader, rendezvous):
        member = Member(rendezvous, 1, work=lambda each: each.serve(lambda _: Interrupted(), HOST))
        leader.wait_until_ready(nothing, 10)
        leader.start()
        assert isinstance(member.ended(), Told)
    assert stopped_after == ["node 1 (127.0.0.1) gave up: SIGTERM"]


def test_member_that_fetches_notices_at_once_that_it_is_not_needed() -> None:
    def fetch(member: GangMember) -> None:
        while True:
            member.check()
            time.sleep(0.02)

    announced = Announced()
    with GangLeader(announced.place, 2, log=lambda _: None):
        member = Member(announced.rendezvous, 1, work=fetch)
        wait_until(lambda: bool(member.log))
    assert isinstance(member.ended(), WorkDone)


def test_member_that_can_do_nothing_waits_until_that_is_seen_to() -> None:
    def give_up(member: GangMember) -> None:
        member.fail("the model cannot be had")
        member.wait_for_the_end(10)

    with led(2) as (leader, rendezvous):
        member = Member(rendezvous, 1, work=give_up)
        with pytest.raises(NodeLost, match=r"node 1 .* gave up: the model cannot be had"):
            leader.wait_until_ready(nothing, 10)
    assert isinstance(member.ended(), WorkDone)
