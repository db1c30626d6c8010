"""Engines for the loop's tests: one that replies from a list, and one that is a small deterministic model."""

from collections.abc import Sequence
from typing import Any

import orjson

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engines.protocol import EngineReply, EngineRequest
from batch_pipelines.tool_use.sandbox import CodeResult

CALL = "\n```\n"
PATHS = {"completion": "/v1/completions", "v1": "/v1/completions", "chat": "/v1/chat/completions"}


def said(
    kind: ItemKind,
    text: str | None,
    *,
    prompt_tokens: int,
    tokens: int,
    finish_reason: str = "stop",
    stop_reason: str | int | None = None,
    logprobs: Any = None,
    **message: Any,
) -> EngineReply:
    """A reply in the form of vLLM's."""
    choice: dict[str, Any] = {
        "index": 0,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
    }
    if kind == "chat":
        choice["message"] = {"role": "assistant", "content": text, **message}
    else:
        choice["text"] = text
    body = {
        "id": f"id-{prompt_tokens}",
        "object": "chat.completion" if kind == "chat" else "text_completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
            "prompt_tokens_details": None,
        },
    }
    return EngineReply(200, orjson.dumps(body))


def refused(message: str, status: int = 400) -> EngineReply:
    """An error in the form of vLLM's."""
    error = {"message": message, "type": "BadRequestError", "param": None, "code": status}
    return EngineReply(status, orjson.dumps({"error": error}))


class ListedReplies:
    """Replies in turn, and remembers what it was asked."""

    def __init__(self, *replies: EngineReply | None) -> None:
        self.replies = list(replies)
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, request: EngineRequest) -> EngineReply | None:
        self.bodies.append(orjson.loads(request.body))
        return self.replies.pop(0)


class ListedResults:
    """Runs code by giving results in turn, and remembers the code."""

    def __init__(self, *outputs: str | CodeResult) -> None:
        self.outputs = list(outputs)
        self.codes: list[str] = []

    async def __call__(self, code: str, *, timeout_sec: float, before: Sequence[str] = ()) -> CodeResult:
        assert timeout_sec > 0
        assert not before
        self.codes.append(code)
        output = self.outputs.pop(0)
        return output if isinstance(output, CodeResult) else CodeResult(output, 0, 0.25)


class SmallModel:
    """Completes prompts: after the n-th output of a tool it writes the n-th of its turns.

    A token is a character. It keeps to stop strings and to token limits, as engines do.
    """

    def __init__(self, prompt: str, turns: Sequence[str], *, include_stop: bool = False) -> None:
        self.prompt = prompt
        self.turns = turns
        self.include_stop = include_stop
        self.requests = 0

    async def __call__(self, request: EngineRequest) -> EngineReply:
        self.requests += 1
        body = orjson.loads(request.body)
        assert body["prompt"].startswith(self.prompt)
        outputs = body["prompt"].removeprefix(self.prompt).split("\n>>>\n")
        turn = self.turns[len(outputs) - 1]
        assert turn.startswith(outputs[-1]), "the text so far is not what the model wrote"
        text = turn[len(outputs[-1]) :][: body["max_tokens"]]
        finish, stop, tokens = "length" if len(text) == body["max_tokens"] else "stop", None, len(text)
        for mark in body["stop"]:
            if mark in text:
                end = text.index(mark)
                tokens = end + len(mark)
                text = text[:tokens] if self.include_stop else text[:end]
                finish, stop = "stop", mark
        return said(
            "completion",
            text,
            prompt_tokens=len(body["prompt"]),
            tokens=tokens,
            finish_reason=finish,
            stop_reason=stop,
        )
