"""The keeper starts, revives and gives up an engine, and finds the request that kills it."""

import asyncio

import pytest

from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.engines.protocol import EngineDied, EngineReply, EngineRequest, EngineStartError
from batch_pipelines.feeding.keeper import EngineKeeper

CANARY = EngineRequest("/v1/completions", b'{"prompt":"canary"}')


def request(text: str) -> EngineRequest:
    return EngineRequest("/v1/completions", b'{"prompt":"%s"}' % text.encode())


async def answer_all(keeper: EngineKeeper, texts: list[str]) -> list[EngineReply | None]:
    return await asyncio.gather(*(keeper.answer(request(text)) for text in texts))


def test_engine_starts_with_the_first_request_and_only_once() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        keeper = EngineKeeper(engine, canary=CANARY, on_event=lambda _: None)
        assert engine.starts == 0
        replies = await answer_all(keeper, ["a", "b", "c"])
        assert [reply.status for reply in replies if reply] == [200, 200, 200]
        assert engine.starts == keeper.starts == 1

    asyncio.run(scenario())


def test_request_that_kills_the_engine_is_found_and_the_others_are_answered() -> None:
    async def scenario() -> None:
        keeper = EngineKeeper(FakeEngine(delay_sec=0.005), canary=CANARY, on_event=lambda _: None)
        texts = [f"item {n}" for n in range(20)]
        texts[7] = "[[fake:die]]"
        replies = await answer_all(keeper, texts)
        assert [n for n, reply in enumerate(replies) if reply is None] == [7]
        assert keeper.deaths == 3

    asyncio.run(scenario())


def test_engine_that_dies_once_is_revived_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        events: list[str] = []
        keeper = EngineKeeper(FakeEngine(), canary=CANARY, on_event=events.append)
        replies = await answer_all(keeper, ["a", "[[fake:die 1]]", "b"])
        assert all(reply is not None and reply.status == 200 for reply in replies)
        assert (keeper.starts, keeper.deaths) == (2, 1)
        assert [event.split(":")[0] for event in events] == [
            "engine ready",
            "engine died",
            "engine ready again (start 2)",
        ]

    asyncio.run(scenario())


def test_engine_that_does_not_start_is_asked_once_and_fails_every_request() -> None:
    class Stubborn(FakeEngine):
        attempts = 0

        async def start(self) -> None:
            Stubborn.attempts += 1
            await super().start()

    async def scenario() -> None:
        keeper = EngineKeeper(Stubborn(start_error="no memory"), canary=CANARY, on_event=lambda _: None)
        results = await asyncio.gather(
            *(keeper.answer(request("x")) for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(result, EngineStartError) and "no memory" in str(result) for result in results)
        assert Stubborn.attempts == 1

    asyncio.run(scenario())


def test_engine_that_dies_without_answering_anything_is_given_up() -> None:
    class Doomed(FakeEngine):
        async def send(self, request: EngineRequest) -> EngineReply:
            self._die()
            raise EngineDied(f"out of memory at {request.path}")

    async def scenario() -> None:
        keeper = EngineKeeper(Doomed(), canary=CANARY, on_event=lambda _: None)
        for text in ("first", "second"):
            with pytest.raises(EngineDied, match="6 times without answering"):
                await keeper.answer(request(text))
        assert keeper.starts == 6

    asyncio.run(scenario())


def test_many_deadly_requests_in_a_row_are_each_found() -> None:
    async def scenario() -> None:
        keeper = EngineKeeper(FakeEngine(), canary=CANARY, on_event=lambda _: None)
        texts = [*(f"item {n}" for n in range(5)), *(f"[[fake:die]] {n}" for n in range(8))]
        replies = await answer_all(keeper, texts)
        assert [reply is None for reply in replies] == [False] * 5 + [True] * 8

    asyncio.run(scenario())


def test_request_is_not_blamed_for_an_engine_that_dies_by_itself() -> None:
    class Frail(FakeEngine):
        async def send(self, request: EngineRequest) -> EngineReply:
            if self.starts <= 4:
                self._die()
                raise EngineDied(f"power cut at {request.path}")
            return await super().send(request)

    async def scenario() -> None:
        keeper = EngineKeeper(Frail(), canary=CANARY, on_event=lambda _: None)
        reply = await keeper.answer(request("innocent"))
        assert reply is not None
        assert reply.status == 200

    asyncio.run(scenario())
