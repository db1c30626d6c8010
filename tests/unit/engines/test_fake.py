"""The fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.engines.fake import FakeEngine, read_journal
from batch_pipelines.engines.protocol import Engine, EngineDied, EngineReply, EngineRequest, EngineStartError

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"


def chat(text: object, **fields: object) -> EngineRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return EngineRequest(CHAT, orjson.dumps(body))


def completion(prompt: object, **fields: object) -> EngineRequest:
    return EngineRequest(COMPLETION, orjson.dumps({"model": "m", "prompt": prompt, **fields}))


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 20))


def ask(*requests: EngineRequest) -> list[Any]:
    """Send requests to a fresh engine; returns the parsed replies."""

    async def send() -> list[EngineReply]:
        engine = FakeEngine()
        await engine.start()
        return [await engine.send(request) for request in requests]

    return [orjson.loads(reply.body) for reply in asyncio.run(send())]


def test_fake_is_an_engine() -> None:
    assert isinstance(FakeEngine(), Engine)


def test_same_body_gives_the_same_bytes_from_any_engine() -> None:
    assert ask(chat("hello")) == ask(chat("hello"))
    assert ask(chat("hello")) != ask(chat("hello", seed=1))


def test_chat_has_the_shape_of_the_api() -> None:
    (reply,) = ask(chat("one two three"))
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "m"
    (choice,) = reply["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"].endswith(": one two three")
    assert choice["finish_reason"] == "stop"
    assert reply["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_completion_answers_each_prompt_n_times() -> None:
    (reply,) = ask(completion(["one two", "three"], n=2))
    assert reply["object"] == "text_completion"
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in reply["choices"]}) == 4
    assert reply["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_answer_stops_at_the_limit(limit: str) -> None:
    (reply,) = ask(chat("one two three", **{limit: 2}))
    assert reply["usage"]["completion_tokens"] == 2
    assert reply["choices"][0]["finish_reason"] == "length"


def test_logprobs_have_one_entry_per_token() -> None:
    of_chat, of_completion, none = ask(
        chat("a b", logprobs=True), completion("a b", logprobs=0), completion("a b")
    )
    assert len(of_chat["choices"][0]["logprobs"]["content"]) == 3
    logprobs = of_completion["choices"][0]["logprobs"]
    text = of_completion["choices"][0]["text"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert text[offset:].startswith(token)
    assert none["choices"][0]["logprobs"] is None


def test_token_ids_and_content_parts_are_prompts_too() -> None:
    ids, parts = ask(
        completion([1, 2, 3]), chat([{"type": "text", "text": "see this"}, {"type": "image_url"}])
    )
    assert ids["choices"][0]["text"].endswith(": 1 2 3")
    assert "see this" in parts["choices"][0]["message"]["content"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"messages": []}', b'{"messages": [1]}'])
def test_unreadable_request_is_answered_400(body: bytes) -> None:
    (reply,) = ask(EngineRequest(CHAT, body))
    assert reply["error"]["code"] == 400
    assert reply["error"]["type"] == "BadRequestError"


def test_marker_asks_for_an_error() -> None:
    (reply,) = ask(chat("please [[fake:error 400 too long]] now"))
    assert reply == {"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}}


def test_die_fails_everything_in_flight_until_started_again() -> None:
    async def body() -> None:
        engine = FakeEngine(delay_sec=600)
        await engine.start()
        waiting = [asyncio.create_task(engine.send(chat(str(number)))) for number in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(EngineDied, match="told to die"):
            await engine.send(chat("[[fake:die]]"))
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [EngineDied] * 3
        with pytest.raises(EngineDied, match="not running"):
            await engine.send(chat("hello"))
        await engine.start()
        assert engine.starts == 2

    run(body())


def test_die_fails_requests_without_a_delay_too() -> None:
    async def body() -> None:
        engine = FakeEngine()
        await engine.start()
        waiting = asyncio.create_task(engine.send(chat("hello")))
        await asyncio.sleep(0)
        with pytest.raises(EngineDied):
            await engine.send(chat("[[fake:die]]"))
        await engine.start()
        with pytest.raises(EngineDied, match="died"):
            await waiting

    run(body())


def test_die_can_be_limited_to_the_first_times() -> None:
    async def body() -> None:
        engine = FakeEngine()
        for _ in range(2):
            await engine.start()
            with pytest.raises(EngineDied):
                await engine.send(chat("[[fake:die 2]]"))
        await engine.start()
        assert (await engine.send(chat("[[fake:die 2]]"))).status == 200

    run(body())


def test_stop_fails_what_is_in_flight_and_may_be_repeated() -> None:
    async def body() -> None:
        engine = FakeEngine(delay_sec=600)
        await engine.start()
        waiting = asyncio.create_task(engine.send(chat("hello")))
        await asyncio.sleep(0)
        await engine.stop()
        await engine.stop()
        with pytest.raises(EngineDied):
            await waiting

    run(body())


def test_requests_wait_side_by_side() -> None:
    async def body() -> None:
        engine = FakeEngine(delay_sec=0.2)
        await engine.start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(engine.send(chat(str(number))) for number in range(50)))
        assert 0.2 <= loop.time() - began < 2.0

    run(body())


def test_start_can_be_told_to_fail() -> None:
    async def body() -> None:
        with pytest.raises(EngineStartError, match="no room"):
            await FakeEngine(start_error="no room").start()

    run(body())


def test_journal_counts_requests_of_several_engines(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert read_journal(journal) == []

    async def body() -> None:
        engines = [FakeEngine(journal=journal) for _ in range(2)]
        for engine in engines:
            await engine.start()
            await engine.send(chat("item 1\nof two"))
            await engine.send(completion("x" * 500))
            await engine.stop()

    run(body())
    entries = read_journal(journal)
    assert [entry.prompt for entry in entries] == ["item 1\nof two", "x" * 120] * 2
    assert entries[0].digest == entries[2].digest != entries[1].digest
