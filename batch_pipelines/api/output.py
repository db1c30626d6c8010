"""The records of an output file: one for each item, in the order of the input.

The engine's own answers may have more keys than named here, and so may an echo of the item's extra keys.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from batch_pipelines.api.base import OpenModel

__all__ = [
    "ChatCompletion",
    "Completion",
    "CompletionOutput",
    "ErrorRecord",
    "ItemError",
    "OutputRecord",
    "TokenOutput",
    "ToolCallTrace",
    "Usage",
]


class TokenOutput(OpenModel):
    """One generated token."""

    token: str
    """Its text."""
    log_prob: float | None
    """Its natural log probability."""


class ToolCallTrace(OpenModel):
    """One run of the model's code, between two rounds of generation."""

    iteration: int
    """The round it followed, from 1."""
    code: str
    """What the model wrote."""
    output: str
    """What was put into the text for it."""
    exit_code: int | None
    """The program's exit code, 128 + N after signal N; null if it was stopped."""
    seconds: float
    """How long its last run took."""
    timed_out: bool
    """Whether it was stopped for its time."""
    truncated: bool
    """Whether it printed too much."""
    retried: int
    """How often it ran again for a missing name."""


class CompletionOutput(OpenModel):
    """The answer to one V1 prompt."""

    text: str
    """The generated text."""
    num_prompt_tokens: int
    """Tokens of the prompt."""
    num_completion_tokens: int
    """Generated tokens."""
    tokens: list[TokenOutput] | None = None
    """The generated tokens, if `return_token_log_probs` was set; else null."""
    tool_trace: list[ToolCallTrace] | None = None
    """The code that ran; with a `tool_config`."""


class ItemError(OpenModel):
    """Why an item has no answer."""

    message: str
    """What is wrong, naming the field if it is one."""
    type: str
    """Kind of error, such as `BadRequestError`."""
    param: str | None = None
    """The field at fault."""
    code: int
    """HTTP status that fits: 4xx if the item is at fault, 5xx if the engine is."""


class ErrorRecord(OpenModel):
    """Stands where the answer to an item would."""

    error: ItemError
    """Why there is none."""


class Usage(OpenModel):
    """Token counts of one answer."""

    prompt_tokens: int
    """Tokens of the prompt."""
    completion_tokens: int | None = None
    """Generated tokens."""
    total_tokens: int
    """Both."""
    tool_tokens: int | None = None
    """Tokens that a tool's output added to the text, beside these; with a `tool_config`."""


class ChatCompletionMessage(OpenModel):
    """A message of the model's."""

    role: str
    """The role it speaks in."""
    content: str | None = None
    """Its text."""
    tool_calls: list[dict[str, Any]] | None = None
    """Calls it makes."""


class ChatCompletionChoice(OpenModel):
    """One answer to a chat."""

    index: int
    """Its place among the answers."""
    message: ChatCompletionMessage
    """The answer."""
    logprobs: dict[str, Any] | None = None
    """Log probabilities, if asked for."""
    finish_reason: str | None = None
    """Why it ended, such as `stop`, `length` or `tool_calls`."""


class ChatCompletion(OpenModel):
    """The answer to a chat."""

    id: str
    """The engine's identifier."""
    object: Literal["chat.completion"]
    """Always `chat.completion`."""
    created: int
    """Unix time, in seconds."""
    model: str
    """The model's name."""
    choices: list[ChatCompletionChoice]
    """The answers, as many as `n`."""
    usage: Usage
    """Token counts."""
    tool_trace: list[ToolCallTrace] | None = None
    """The code that ran; with a `tool_config`."""


class CompletionChoice(OpenModel):
    """One completion of a prompt."""

    index: int
    """Its place among the completions."""
    text: str
    """The text."""
    logprobs: dict[str, Any] | None = None
    """Log probabilities, if asked for."""
    finish_reason: str | None = None
    """Why it ended, such as `stop` or `length`."""


class Completion(OpenModel):
    """The answer to a completion."""

    id: str
    """The engine's identifier."""
    object: Literal["text_completion"]
    """Always `text_completion`."""
    created: int
    """Unix time, in seconds."""
    model: str
    """The model's name."""
    choices: list[CompletionChoice]
    """The completions: `n` for each prompt."""
    usage: Usage
    """Token counts."""
    tool_trace: list[ToolCallTrace] | None = None
    """The code that ran; with a `tool_config`."""


OutputRecord = Annotated[
    ChatCompletion | Completion | CompletionOutput | ErrorRecord,
    Field(description="What one item was answered with."),
]
