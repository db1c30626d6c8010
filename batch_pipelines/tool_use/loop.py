"""The loop of a model that runs code: generate, run what it wrote, go on from its output.

What ends a call and how its output looks is in `code_blocks`, running it in `execution`, and what the rounds
come to in `rounds`. The engine is asked through a function, and so is the sandbox.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.request import ToolConfig
from batch_pipelines.engines.protocol import EngineReply, EngineRequest
from batch_pipelines.feeding.exchange import Ask
from batch_pipelines.tool_use.code_blocks import CALL, find_call, output_block
from batch_pipelines.tool_use.execution import RunCode, run_call
from batch_pipelines.tool_use.prompt import Prompt
from batch_pipelines.tool_use.refusals import refusal
from batch_pipelines.tool_use.rounds import Reply, Transcript, read_reply

__all__ = ["TOOL_NAME", "ToolLoopSettings", "ToolOutcome", "answer_with_tool"]

TOOL_NAME: Final = "code_evaluator"
"""The one tool there is."""

_CONTEXT_FULL: Final = re.compile(rb"maximum context length|maximum model length")
_BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class ToolLoopSettings:
    """A job's `tool_config`, with the defaults in place.

    Attributes:
        max_iterations: Most rounds of generation.
        execution_timeout_sec: Longest run of one piece of code, in seconds.
        retry_on_error: Whether code that lacks a name is run again; see `execution.run_call`.
    """

    max_iterations: int = 10
    execution_timeout_sec: int = 60
    retry_on_error: bool = True

    @classmethod
    def from_config(cls, config: ToolConfig) -> Self:
        """The settings of a job."""
        return cls(
            max_iterations=config.max_iterations or 10,
            execution_timeout_sec=config.execution_timeout_seconds or 60,
            retry_on_error=config.should_retry_on_error is not False,
        )


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of an item.

    Attributes:
        reply: The whole answer as one reply of the engine's, or the engine's own error; None if there is
            neither.
        error: Why the item cannot be answered with a tool, if that is so. Without it and without a reply, a
            request of the item's kills engines.
    """

    reply: EngineReply | None
    error: ItemError | None = None


async def answer_with_tool(
    kind: ItemKind, item: Any, request: EngineRequest, settings: ToolLoopSettings, ask: Ask, run: RunCode
) -> ToolOutcome:
    """Answer one item, running the code that the model writes.

    Each round goes on from the text so far. The answer ends when the model ends it, and with the finish
    reason `length` when the item's token limit, the model's context or the rounds are used up. An engine's
    error in any round is the item's.

    Args:
        kind: What the item is.
        item: The item's parsed JSON; for V1, one prompt.
        request: The engine's request for the item, as it would be without a tool.
        settings: The job's settings of the tool.
        ask: Sends a request to the engine.
        run: Runs code in a sandbox.

    Raises:
        SandboxFailed: Code could not be run at all, which is no fault of the item's.
    """
    body = orjson.loads(request.body)
    refused = refusal(kind, item, body)
    if refused is not None:
        return ToolOutcome(None, refused)
    return await _Loop(Prompt(kind, request.path, body), settings, ask, run).answer()


class _Loop:
    """One item's rounds."""

    def __init__(self, prompt: Prompt, settings: ToolLoopSettings, ask: Ask, run: RunCode) -> None:
        self._prompt = prompt
        self._settings = settings
        self._ask = ask
        self._run = run
        self._answer = Transcript(prompt.kind)
        self._worked: list[str] = []
        self._uncounted = ""
        """The tool's last output, whose tokens only the next prompt's count will tell."""

    async def answer(self) -> ToolOutcome:
        for iteration in range(1, self._settings.max_iterations + 1):
            outcome = await self._generate()
            if isinstance(outcome, ToolOutcome):
                return outcome
            call = find_call(outcome)
            if call is None and self._answer.last.choice.get("stop_reason") != CALL:
                return ToolOutcome(self._answer.finished())
            if call is not None:
                # Stopping at the mark leaves nothing behind it; what an engine wrote on would be made up.
                self._answer.cut(len(outcome) - call.end)
            if self._left() == 0:
                return self._cut_short()
            if call is not None:
                await self._call(iteration, call.code)
        if self._uncounted:
            await self._count_last_output()
        return self._cut_short()

    async def _generate(self) -> str | ToolOutcome:
        """Generate up to the model's next stop; returns what it wrote, or what the item has come to."""
        wrote = ""
        while True:
            left, bounded = self._left(), bool(self._uncounted)
            # A token is a byte at least, so this keeps to the limit before the output's tokens are known.
            limit = None if left is None else max(1, left - len(self._uncounted.encode()))
            reply = await self._ask(self._prompt.continued(self._answer, limit))
            if reply is None:
                return ToolOutcome(None)
            found = read_reply(self._prompt.kind, reply)
            if found is None:
                if not self._answer.begun or not _CONTEXT_FULL.search(reply.body):
                    return ToolOutcome(reply)
                self._count(None)
                return self._cut_short()
            self._count(found)
            if self._answer.begun and self._left() == 0:
                return self._cut_short()  # the output alone used the limit up
            stopped_at_call = found.choice.get("stop_reason") == CALL and not found.text.endswith(CALL)
            text = found.text + CALL if stopped_at_call else found.text
            self._answer.add(found, text)
            wrote += text
            if not (bounded and found.choice.get("finish_reason") == "length" and self._left()):
                return wrote

    async def _call(self, iteration: int, code: str) -> None:
        done = await run_call(
            code,
            self._worked,
            self._run,
            timeout_sec=self._settings.execution_timeout_sec,
            retry=self._settings.retry_on_error,
        )
        if done.exit_code == 0:
            self._worked.append(code)
        self._answer.runs.append((iteration, done))
        self._uncounted = output_block(done.output)
        self._answer.text += self._uncounted

    async def _count_last_output(self) -> None:
        """Ask for one token more, only to be told how long the prompt is."""
        reply = await self._ask(self._prompt.continued(self._answer, 1))
        self._count(None if reply is None else read_reply(self._prompt.kind, reply))

    def _count(self, reply: Reply | None) -> None:
        """Count the tool's last output: by how much longer this round's prompt is, or else by its bytes."""
        if not self._uncounted:
            return
        if reply is None:
            self._answer.inserted += math.ceil(len(self._uncounted.encode()) / _BYTES_PER_TOKEN)
        else:
            last = self._answer.last
            known = last.prompt_tokens + last.completion_tokens
            self._answer.inserted += max(0, reply.prompt_tokens - known)
        self._uncounted = ""

    def _left(self) -> int | None:
        """Tokens left of the item's limit; None where it has none."""
        limit = self._prompt.limit
        return None if limit is None else max(0, limit - self._answer.tokens)

    def _cut_short(self) -> ToolOutcome:
        self._answer.finish_reason = "length"
        return ToolOutcome(self._answer.finished())
