"""An item that continues a chat."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from batch_pipelines.api.base import Int, NonNegativeInt, OpenModel, Toggle, Whole
from batch_pipelines.api.messages import ChatCompletionRequestMessage, TextPart
from batch_pipelines.api.sampling import SamplingFields
from batch_pipelines.api.tools import (
    ChatCompletionFunctions,
    ChatCompletionTool,
    FunctionCallChoice,
    ToolChoice,
)

__all__ = [
    "Audio2",
    "FilteredChatCompletionV2Request",
    "PredictionContent",
    "UserLocation",
    "WebSearchLocation",
    "WebSearchOptions",
]


class WebSearchLocation(OpenModel):
    """Roughly where a user is."""

    country: str | None = None
    """Two-letter ISO code, such as `NL`."""
    region: str | None = None
    """State or province."""
    city: str | None = None
    """City."""
    timezone: str | None = None
    """IANA name, such as `Europe/Amsterdam`."""


class UserLocation(OpenModel):
    """Where a web search is to be done from."""

    type: Literal["approximate"]
    """Always `approximate`."""
    approximate: WebSearchLocation
    """The place."""


class WebSearchOptions(OpenModel):
    """How the model is to search the web."""

    user_location: UserLocation | None = None
    """Where the search is to be done from."""
    search_context_size: Literal["low", "medium", "high"] | None = None
    """How much of the context may go to search results."""


class Audio2(OpenModel):
    """How a spoken answer is to sound."""

    voice: str
    """The voice, such as `alloy`, `ash`, `ballad`, `coral`, `echo`, `sage`, `shimmer` or `verse`."""
    format: Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"]
    """The encoding."""


class PredictionContent(OpenModel):
    """Text that the answer will mostly repeat."""

    type: Literal["content"]
    """Always `content`."""
    content: Annotated[
        Annotated[str, Tag("<string>")] | Annotated[list[TextPart], Tag("<texts>")],
        Discriminator(
            lambda value: (
                "<string>" if isinstance(value, str) else "<texts>" if isinstance(value, list) else None
            ),
            custom_error_type="prediction",
            custom_error_message="Input should be a string or a list of text parts",
        ),
    ]
    """The expected text."""


class FilteredChatCompletionV2Request(SamplingFields):
    """One chat whose next message the model is to write."""

    messages: list[ChatCompletionRequestMessage] = Field(min_length=1)
    """The conversation so far, oldest message first."""
    max_completion_tokens: NonNegativeInt | None = None
    """Most tokens to generate, reasoning included; goes before `max_tokens`."""
    logprobs: Toggle | None = None
    """Report the log probability of each token of the answer."""
    top_logprobs: Annotated[int, Whole(ge=0, le=20)] | None = None
    """Likeliest tokens to report at each position, 0 to 20; needs `logprobs`."""
    echo: Toggle | None = None
    """Put the last message before the answer, if it is of the same role."""
    add_generation_prompt: Toggle | None = None
    """Have the chat template open the assistant's turn."""
    continue_final_message: Toggle | None = None
    """Continue the last message in place of starting a new one; not together with `add_generation_prompt`."""
    documents: list[dict[str, Any]] | None = None
    """Documents for templates that support retrieval, each with a `title` and a `text`."""
    chat_template: str | None = None
    """Jinja template for this chat, in place of the model's."""
    chat_template_kwargs: dict[str, Any] | None = None
    """More variables for the chat template."""
    priority: Int | None = None
    """Lower goes first inside the engine; other than 0 needs an engine that schedules by priority."""
    metadata: dict[str, str] | None = None
    """Notes of the sender's; no effect."""
    service_tier: Literal["auto", "default", "flex"] | None = None
    """Service tier; no effect."""
    modalities: list[str] | None = None
    """Kinds of output wanted; text is the only one."""
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    """How long a reasoning model is to think."""
    web_search_options: WebSearchOptions | None = None
    """How to search the web; engines cannot."""
    audio: Audio2 | None = None
    """How a spoken answer is to sound; engines cannot speak."""
    store: Toggle | None = None
    """Whether to keep the answer for later use; no effect, the output file keeps it."""
    prediction: PredictionContent | None = None
    """Text the answer will mostly repeat, to speed it up; no effect."""
    tools: list[ChatCompletionTool] | None = Field(default=None, max_length=128)
    """Tools the model may call, at most 128."""
    tool_choice: ToolChoice | None = None
    """Whether the model may call tools, must, or must call a given one."""
    parallel_tool_calls: Toggle | None = None
    """Whether the model may make several calls at once."""
    function_call: FunctionCallChoice | None = None
    """Older form of `tool_choice`."""
    functions: list[ChatCompletionFunctions] | None = Field(default=None, min_length=1, max_length=128)
    """Older form of `tools`, 1 to 128 functions."""
