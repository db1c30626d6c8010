"""An engine of several nodes: it starts with its members, dies with any of them, and says which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.engines.gang import NodeLost, Rendezvous, Start
from batch_pipelines.engines.gang_engine import GangEngine
from batch_pipelines.engines.gang_leader import GangLeader
from batch_pipelines.engines.gang_member import WorkDone
from batch_pipelines.engines.protocol import Engine, EngineDied, EngineReply, EngineRequest, EngineStartError
from batch_pipelines.feeding.keeper import EngineKeeper
from tests.support.gangs import READY, Member, led, raw_member
from tests.support.processes import wait_until


def ask(prompt: str) -> EngineRequest:
    return EngineRequest("/v1/completions", orjson.dumps({"prompt": prompt}))


def with_engine(body: Callable[[GangEngine, Member], Awaitable[None]], part: Engine | None = None) -> Member:
    """Run `body` with an engine of two nodes whose other node is ready."""

    async def run(leader: GangLeader, member: Member) -> None:
        engine = GangEngine(part or FakeEngine(), leader, lambda _: None)
        try:
            await asyncio.wait_for(body(engine, member), 30)
        finally:
            await engine.stop()

    with led(2) as (leader, rendezvous):
        member = Member(rendezvous, 1)
        leader.wait_until_ready(lambda: None, 10)
        asyncio.run(run(leader, member))
    return member


class HangingEngine(FakeEngine):
    """Never comes up."""

    async def start(self) -> None:
        await asyncio.Event().wait()


def test_is_an_engine_that_answers_and_ends_with_its_members() -> None:
    async def body(engine: GangEngine, member: Member) -> None:
        assert isinstance(engine, Engine)
        with pytest.raises(EngineDied, match="not running"):
            await engine.send(ask("hello"))
        await engine.start()
        await engine.start()  # nothing happens
        assert (await engine.send(ask("hello"))).status == 200
        await asyncio.to_thread(wait_until, lambda: len(member.parts) == 1)
        await engine.stop()
        assert member.parts[0].ended

    assert isinstance(with_engine(body).ended(), WorkDone)


def test_own_part_is_told_of_each_start_before_it_is_started() -> None:
    told: list[Start] = []

    class Part(FakeEngine):
        async def start(self) -> None:
            assert len(told) == self.starts + 1
            await super().start()

    async def run(leader: GangLeader) -> None:
        engine = GangEngine(Part(), leader, told.append)
        await engine.start()
        await engine.stop()
        await engine.start()
        await engine.stop()

    with led(2) as (leader, rendezvous):
        Member(rendezvous, 1)
        leader.wait_until_ready(lambda: None, 10)
        asyncio.run(run(leader))
    assert [(start.incarnation, start.nodes) for start in told] == [(1, 2), (2, 2)]


def test_member_lost_in_mid_request_fails_it_with_the_nodes_name_and_ends_the_gang() -> None:
    async def run(leader: GangLeader, rendezvous: Rendezvous) -> None:
        with raw_member(rendezvous, 1) as channel:
            channel.send(READY)
            channel.keep_alive()
            await asyncio.to_thread(leader.wait_until_ready, lambda: None, 10)
            engine = GangEngine(FakeEngine(delay_sec=600), leader, lambda _: None)
            await engine.start()
            asked = [asyncio.create_task(engine.send(ask("hello"))) for _ in range(3)]
            await asyncio.sleep(0)
            channel.close()
            results = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)
        assert {(type(result), str(result)) for result in results} == {
            (EngineDied, "the engine died: node 1 (127.0.0.1) is lost: it closed the connection")
        }
        with pytest.raises(NodeLost, match="node 1"):
            await engine.start()
        await engine.stop()

    with led(2) as (leader, rendezvous):
        asyncio.run(run(leader, rendezvous))


def test_keeper_gives_up_on_a_lost_member_with_its_reason() -> None:
    async def run(leader: GangLeader, rendezvous: Rendezvous) -> None:
        with raw_member(rendezvous, 1) as channel:
            channel.send(READY)
            channel.keep_alive()
            await asyncio.to_thread(leader.wait_until_ready, lambda: None, 10)
            engine = GangEngine(FakeEngine(delay_sec=600), leader, lambda _: None)
            keeper = EngineKeeper(engine, canary=ask("canary"), on_event=lambda _: None)
            answer = asyncio.create_task(keeper.answer(ask("hello")))
            await asyncio.to_thread(wait_until, lambda: leader.trouble(1) is None and keeper.starts == 1)
            channel.close()
            with pytest.raises(NodeLost, match="node 1"):
                await asyncio.wait_for(answer, 10)
            await keeper.stop()

    with led(2) as (leader, rendezvous):
        asyncio.run(run(leader, rendezvous))


def test_item_that_kills_the_leaders_part_costs_one_start_of_all_parts() -> None:
    async def body(engine: GangEngine, member: Member) -> None:
        events: list[str] = []
        keeper = EngineKeeper(engine, canary=ask("canary"), on_event=events.append)
        reply = await keeper.answer(ask("[[fake:die 1]]"))
        assert isinstance(reply, EngineReply)
        assert reply.status == 200
        assert keeper.deaths == 1
        await asyncio.to_thread(wait_until, lambda: len(member.parts) == 2)
        assert [start.incarnation for start in member.starts] == [1, 2]
        assert [part.ended for part in member.parts] == [True, False]
        await keeper.stop()

    with_engine(body)


def test_part_that_dies_on_a_member_is_the_engines_death_and_a_new_start_helps() -> None:
    async def body(engine: GangEngine, member: Member) -> None:
        await engine.start()
        asked = asyncio.create_task(engine.send(ask("hello")))
        await asyncio.to_thread(wait_until, lambda: len(member.parts) == 1)
        member.parts[0].die(1, "RuntimeError: bad item")
        with pytest.raises(
            EngineDied, match=r"^the engine died: its part on node 1 .* code 1: RuntimeError: bad item$"
        ):
            await asked
        await engine.start()
        await asyncio.to_thread(wait_until, lambda: len(member.parts) == 2)
        await engine.stop()

    with_engine(body, FakeEngine(delay_sec=600))


def test_part_that_dies_at_the_start_ends_the_start_with_its_reason() -> None:
    async def body(engine: GangEngine, member: Member) -> None:
        starting = asyncio.create_task(engine.start())
        await asyncio.to_thread(wait_until, lambda: len(member.parts) == 1)
        member.parts[0].die(1, "ValueError: no room for the KV cache")
        with pytest.raises(EngineStartError, match=r"node 1 .* no room for the KV cache") as error:
            await starting
        assert not isinstance(error.value, NodeLost)

    with_engine(body, HangingEngine())


def test_own_part_that_does_not_start_ends_the_others_parts() -> None:
    async def body(engine: GangEngine, member: Member) -> None:
        with pytest.raises(EngineStartError, match="told not to"):
            await engine.start()
        assert all(part.ended for part in member.parts)

    with_engine(body, FakeEngine(start_error="told not to"))


def test_cancelled_start_ends_the_others_parts() -> None:
    async def body(engine: GangEngine, member: Member) -> None:
        starting = asyncio.create_task(engine.start())
        await asyncio.to_thread(wait_until, lambda: len(member.parts) == 1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert member.parts[0].ended

    with_engine(body, HangingEngine())
