"""A stand-in for a model server, for tests and for trying a deployment without a model.

It is part of the package because everything that takes an `Engine` can be tested with it, here and in a
deployment's own tests. What it answers depends on the request's body alone, so two runs, or two replicas,
answer alike.

A prompt can ask for trouble:

* `[[fake:error 400 some message]]` is answered with that status and message;
* `[[fake:die]]` kills the engine: every request in flight raises `EngineDied` until `start()` is called
  again;
* `[[fake:die 2]]` does so for the first two times this engine object sees that prompt, and is answered after
  that.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from batch_pipelines.engines.protocol import EngineDied, EngineReply, EngineRequest, EngineStartError

_MARKER = re.compile(r"\[\[fake:(?:error (?P<status>\d{3}) (?P<message>[^\]]*)|die(?: (?P<times>\d+))?)\]\]")
_WORDS_WITHOUT_LIMIT = 24
_JOURNAL_PROMPT_CHARS = 120
_CREATED = 1_700_000_000


class FakeEngine:
    """Answers requests in the form of the OpenAI API, at once or after a delay, without a model.

    Tokens are words. An answer repeats the prompt behind a digest of it, up to `max_tokens` words.
    """

    def __init__(
        self,
        *,
        max_in_flight: int = 64,
        delay_sec: float = 0.0,
        journal: Path | None = None,
        start_error: str | None = None,
    ) -> None:
        """Set it up; `start()` brings it up.

        Args:
            max_in_flight: What the property of that name returns; nothing is refused beyond it.
            delay_sec: Seconds each request takes.
            journal: File to which each request appends a line when it arrives, see `read_journal`;
                processes may share it.
            start_error: When given, `start()` fails with this message.
        """
        self._max_in_flight = max_in_flight
        self._delay_sec = delay_sec
        self._journal_path = journal
        self._journal: int | None = None
        self._start_error = start_error
        self._running = False
        self._starts = 0
        self._deaths: Counter[bytes] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def max_in_flight(self) -> int:
        """How many requests the one who feeds it should keep in flight."""
        return self._max_in_flight

    @property
    def starts(self) -> int:
        """How many times it came up."""
        return self._starts

    async def start(self) -> None:
        """Come up; raises `EngineStartError` when told to."""
        if self._running:
            return
        if self._start_error is not None:
            raise EngineStartError(self._start_error)
        if self._journal_path is not None and self._journal is None:
            self._journal = os.open(
                self._journal_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        self._running = True
        self._starts += 1

    async def stop(self) -> None:
        """Go down; requests in flight raise `EngineDied`."""
        self._die()
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None

    async def send(self, request: EngineRequest) -> EngineReply:
        """Answer one request; see `Engine.send`."""
        if not self._running:
            raise EngineDied("the fake engine is not running")
        start = self._starts
        try:
            body = orjson.loads(request.body)
            prompts = _prompts(request.path, body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _error(400, f"the fake engine cannot read the request: {error!r}")
        digest = hashlib.blake2b(request.body, digest_size=8).hexdigest()
        if self._journal is not None:
            _write_journal(self._journal, digest, prompts[0])
        if b"[[fake:" in request.body and (marker := _MARKER.search("\n".join(prompts))):
            if marker["status"] is not None:
                return _error(int(marker["status"]), marker["message"])
            self._deaths[request.body] += 1
            if marker["times"] is None or self._deaths[request.body] <= int(marker["times"]):
                self._die()
                raise EngineDied("the fake engine was told to die")
        await self._wait()
        if not self._running or self._starts != start:
            raise EngineDied("the fake engine died")
        answer = _chat if request.path.endswith("/chat/completions") else _completion
        return EngineReply(200, orjson.dumps(answer(body, prompts, digest)))

    async def _wait(self) -> None:
        if not self._delay_sec:
            await asyncio.sleep(0)  # let others in, as a real engine would
            return
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiting)
        timer = loop.call_later(self._delay_sec, _finish, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting.discard(waiting)

    def _die(self) -> None:
        self._running = False
        for waiting in self._waiting:
            _finish(waiting)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A request a fake engine saw: in which process, a digest of its body, and the start of its prompt."""

    pid: int
    digest: str
    prompt: str


def read_journal(path: Path) -> list[JournalEntry]:
    """Return every request in the journal, in the order of arrival; a missing file is an empty journal."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_bytes().splitlines():
        pid, digest, prompt = line.split(b" ", 2)
        entries.append(JournalEntry(int(pid), digest.decode(), orjson.loads(prompt)))
    return entries


def _write_journal(journal: int, digest: str, prompt: str) -> None:
    text = orjson.dumps(prompt[:_JOURNAL_PROMPT_CHARS])
    # One write of one line: with O_APPEND the lines of several processes do not mix.
    os.write(journal, b"%d %s %s\n" % (os.getpid(), digest.encode(), text))


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _prompts(path: str, body: dict[str, object]) -> list[str]:
    """Return the texts to answer: one for a chat, one or more for a completion."""
    if path.endswith("/chat/completions"):
        messages = body["messages"]
        if not isinstance(messages, list) or not messages:
            raise ValueError("messages is not a list with a message in it")
        return [_text(messages[-1].get("content"))]
    prompt = body["prompt"]
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return [_text(each) for each in prompt]
    return [_text(prompt)]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text", "") if isinstance(part, dict) else str(part) for part in content)
        return " ".join(parts)
    return "" if content is None else str(content)


def _answers(
    body: dict[str, object], prompts: list[str], digest: str
) -> tuple[list[tuple[list[str], str]], dict[str, int]]:
    """Return the words and finish reason of each choice, and the usage."""
    limit = _int(body, "max_completion_tokens") or _int(body, "max_tokens") or _WORDS_WITHOUT_LIMIT
    count = _int(body, "n") or 1
    choices = []
    for prompt in prompts:
        words = prompt.split()
        for index in range(count):
            full = [f"{digest[:8]}-{index}:" if count > 1 else f"{digest[:8]}:", *words]
            choices.append((full[:limit], "length" if len(full) > limit else "stop"))
    asked = sum(len(prompt.split()) for prompt in prompts)
    given = sum(len(words) for words, _ in choices)
    return choices, {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given}


def _int(body: dict[str, object], name: str) -> int:
    value = body.get(name)
    return value if isinstance(value, int) else 0


def _chat(body: dict[str, object], prompts: list[str], digest: str) -> dict[str, object]:
    answers, usage = _answers(body, prompts, digest)
    choices: list[dict[str, object]] = [
        {
            "index": index,
            "message": {"role": "assistant", "content": " ".join(words)},
            "logprobs": _chat_logprobs(words) if body.get("logprobs") else None,
            "finish_reason": reason,
        }
        for index, (words, reason) in enumerate(answers)
    ]
    return _envelope("chatcmpl", "chat.completion", body, digest, choices, usage)


def _completion(body: dict[str, object], prompts: list[str], digest: str) -> dict[str, object]:
    answers, usage = _answers(body, prompts, digest)
    choices: list[dict[str, object]] = [
        {
            "index": index,
            "text": " ".join(words),
            "logprobs": _completion_logprobs(words) if body.get("logprobs") is not None else None,
            "finish_reason": reason,
        }
        for index, (words, reason) in enumerate(answers)
    ]
    return _envelope("cmpl", "text_completion", body, digest, choices, usage)


def _envelope(
    prefix: str,
    kind: str,
    body: dict[str, object],
    digest: str,
    choices: list[dict[str, object]],
    usage: dict[str, int],
) -> dict[str, object]:
    return {
        "id": f"{prefix}-{digest}",
        "object": kind,
        "created": _CREATED,
        "model": body.get("model") or "fake",
        "choices": choices,
        "usage": usage,
    }


def _chat_logprobs(words: list[str]) -> dict[str, object]:
    return {
        "content": [
            {"token": word, "logprob": -0.5, "bytes": list(word.encode()), "top_logprobs": []}
            for word in words
        ]
    }


def _completion_logprobs(words: list[str]) -> dict[str, object]:
    offsets, at = [], 0
    for word in words:
        offsets.append(at)
        at += len(word) + 1
    return {
        "tokens": words,
        "token_logprobs": [-0.5] * len(words),
        "top_logprobs": [{word: -0.5} for word in words],
        "text_offset": offsets,
    }


def _error(status: int, message: str) -> EngineReply:
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(
        status, "InternalServerError" if status >= 500 else "Error"
    )
    error = {"message": message, "type": kind, "param": None, "code": status}
    return EngineReply(status, orjson.dumps({"error": error}))
