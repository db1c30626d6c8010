"""What the rounds of one answer come to: its text, its tokens, and the engine's object that tells of them.

Nothing is asked or run here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engines.protocol import EngineReply
from batch_pipelines.tool_use.execution import ToolRun

__all__ = ["Reply", "Transcript", "dump", "read_reply"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A good reply of the engine.

    Attributes:
        body: All of it.
        choice: Its one choice.
        text: The text of that.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens generated.
    """

    body: Mapping[str, Any]
    choice: Mapping[str, Any]
    text: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(slots=True)
class Transcript:
    """An answer in the making.

    Attributes:
        kind: What the item is.
        text: The answer so far, code and outputs included.
        prompt_tokens: Tokens of the item's own prompt.
        generated: Tokens generated.
        inserted: Tokens of the tool's outputs.
        runs: Calls of the tool, with the round each came in.
        finish_reason: Why it ended, if that was not the engine's doing.
    """

    kind: ItemKind
    text: str = ""
    prompt_tokens: int = 0
    generated: int = 0
    inserted: int = 0
    runs: list[tuple[int, ToolRun]] = field(default_factory=list)
    finish_reason: str | None = None
    _replies: list[tuple[int, Reply]] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Whether the engine has generated something."""
        return bool(self._replies)

    @property
    def tokens(self) -> int:
        """Tokens used of the item's limit."""
        return self.generated + self.inserted

    @property
    def last(self) -> Reply:
        """The engine's last reply."""
        return self._replies[-1][1]

    def add(self, reply: Reply, text: str) -> None:
        """Take in what the engine generated, and what of it belongs to the answer."""
        if not self._replies:
            self.prompt_tokens = reply.prompt_tokens
        self._replies.append((len(self.text), reply))
        self.generated += reply.completion_tokens
        self.text += text

    def cut(self, chars: int) -> None:
        """Drop the last characters of the text."""
        self.text = self.text[: len(self.text) - chars]

    def finished(self) -> EngineReply:
        """The answer in the form of the engine's own."""
        choice = dict(self.last.choice)
        if self.kind == "chat":
            choice["message"] = {**choice["message"], **self._reasoning(), "content": self.text}
        else:
            choice["text"] = self.text
        choice["logprobs"] = self._logprobs()
        if self.finish_reason is not None:
            choice |= {"finish_reason": self.finish_reason, "stop_reason": None}
        body = {
            **self.last.body,
            "choices": [choice],
            "usage": {**(self.last.body.get("usage") or {}), **self._usage()},
            "tool_trace": [run.traced(iteration) for iteration, run in self.runs],
        }
        return EngineReply(200, dump(body))

    def _usage(self) -> dict[str, int]:
        # V1 has one number for all that follows the prompt.
        completion = self.tokens if self.kind == "v1" else self.generated
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "tool_tokens": self.inserted,
        }

    def _logprobs(self) -> dict[str, Any] | None:
        """Those of all generated tokens, one list after the other; offsets are into the whole text."""
        found = [
            (start, reply.choice["logprobs"])
            for start, reply in self._replies
            if reply.choice.get("logprobs")
        ]
        if not found:
            return None
        joined: dict[str, Any] = dict.fromkeys(found[-1][1])
        for start, logprobs in found:
            for name, entries in logprobs.items():
                if isinstance(entries, list):
                    shift = start if name == "text_offset" else 0
                    moved = [entry + shift for entry in entries] if shift else entries
                    joined[name] = [*(joined.get(name) or []), *moved]
        return joined

    def _reasoning(self) -> dict[str, str]:
        found = [text for _, reply in self._replies if (text := reply.choice["message"].get("reasoning"))]
        return {"reasoning": "\n".join(found)} if found else {}


def read_reply(kind: ItemKind, reply: EngineReply) -> Reply | None:
    """What a reply holds; None if it is no good answer."""
    if not 200 <= reply.status < 300:
        return None
    try:
        body = _load(reply.body)
        choice = body["choices"][0]
        text = choice["message"].get("content") if kind == "chat" else choice["text"]
        usage = body.get("usage") or {}
        return Reply(
            body=body,
            choice=choice,
            text=text or "",
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def dump(body: Mapping[str, Any]) -> bytes:
    """A request's or reply's JSON."""
    try:
        return orjson.dumps(body)
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        return json.dumps(body).encode()


def _load(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # engines write NaN for a log probability that is none
        return json.loads(data.decode(errors="replace"), parse_constant=lambda _: None)
