"""The messages of a chat: one class per role, and the parts a message's content may have.

Keys the contract does not name are kept: engines know more of them (such as an assistant's `reasoning`),
and a part of an unknown type is the engine's to judge.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from batch_pipelines.api.base import OpenModel
from batch_pipelines.api.tools import ChatCompletionMessageToolCall, FunctionCall

__all__ = [
    "Audio",
    "ChatCompletionRequestAssistantMessage",
    "ChatCompletionRequestDeveloperMessage",
    "ChatCompletionRequestFunctionMessage",
    "ChatCompletionRequestMessage",
    "ChatCompletionRequestSystemMessage",
    "ChatCompletionRequestToolMessage",
    "ChatCompletionRequestUserMessage",
    "Content",
    "ContentPart",
]


class TextPart(OpenModel):
    """A piece of text."""

    type: Literal["text"]
    """Always `text`."""
    text: str
    """The text."""


class RefusalPart(OpenModel):
    """A refusal the assistant gave earlier."""

    type: Literal["refusal"]
    """Always `refusal`."""
    refusal: str
    """What the assistant said."""


class ImageUrl(OpenModel):
    """Where an image is."""

    url: str
    """An `https:` or `data:` URL."""
    detail: Literal["auto", "low", "high"] | None = None
    """How closely to look; engines may ignore it."""


class ImagePart(OpenModel):
    """An image."""

    type: Literal["image_url"]
    """Always `image_url`."""
    image_url: ImageUrl
    """Where the image is."""


class InputAudio(OpenModel):
    """A recording, inline."""

    data: str
    """The recording, base64."""
    format: str
    """Its encoding, such as `wav` or `mp3`."""


class InputAudioPart(OpenModel):
    """A recording."""

    type: Literal["input_audio"]
    """Always `input_audio`."""
    input_audio: InputAudio
    """The recording."""


class OtherPart(OpenModel):
    """A part of a type the contract does not name, such as a video; the engine judges it."""

    type: str
    """What kind of part it is."""


_PARTS = {"text": "<text>", "refusal": "<refusal>", "image_url": "<image>", "input_audio": "<audio>"}


def _part_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return _PARTS.get(kind, "<other>") if isinstance(kind, str) else None


def _content_shape(value: Any) -> str | None:
    if isinstance(value, str):
        return "<string>"
    return "<parts>" if isinstance(value, list) else None


ContentPart = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[RefusalPart, Tag("<refusal>")]
    | Annotated[ImagePart, Tag("<image>")]
    | Annotated[InputAudioPart, Tag("<audio>")]
    | Annotated[OtherPart, Tag("<other>")],
    Discriminator(
        _part_kind,
        custom_error_type="content_part",
        custom_error_message="Input should be an object with a `type`, such as 'text' or 'image_url'",
    ),
]

Content = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[ContentPart], Tag("<parts>")],
    Discriminator(
        _content_shape,
        custom_error_type="content",
        custom_error_message="Input should be a string or a list of content parts",
    ),
]


class Audio(OpenModel):
    """An earlier spoken answer of the assistant."""

    id: str
    """Identifier of that answer."""


class ChatCompletionRequestDeveloperMessage(OpenModel):
    """Instructions from the developer, which newer models read in place of a system message."""

    content: Content
    """The instructions."""
    role: Literal["developer"]
    """Always `developer`."""
    name: str | None = None
    """Tells apart speakers of one role."""


class ChatCompletionRequestSystemMessage(OpenModel):
    """Instructions that come before the conversation."""

    content: Content
    """The instructions."""
    role: Literal["system"]
    """Always `system`."""
    name: str | None = None
    """Tells apart speakers of one role."""


class ChatCompletionRequestUserMessage(OpenModel):
    """What the user says or shows."""

    content: Content
    """Text, or a list of text, image and audio parts."""
    role: Literal["user"]
    """Always `user`."""
    name: str | None = None
    """Tells apart speakers of one role."""


class ChatCompletionRequestAssistantMessage(OpenModel):
    """What the model said earlier, or is to continue."""

    content: Content | None = None
    """The answer; may be left out where there are tool calls."""
    refusal: str | None = None
    """The refusal, if that was the answer."""
    role: Literal["assistant"]
    """Always `assistant`."""
    name: str | None = None
    """Tells apart speakers of one role."""
    audio: Audio | None = None
    """The spoken answer this stands for."""
    tool_calls: list[ChatCompletionMessageToolCall] | None = None
    """Calls the model made."""
    function_call: FunctionCall | None = None
    """The one call the model made, in the older form of `tool_calls`."""


class ChatCompletionRequestToolMessage(OpenModel):
    """What a tool returned."""

    role: Literal["tool"]
    """Always `tool`."""
    content: Content
    """The result."""
    tool_call_id: str
    """The `id` of the call it answers."""


class ChatCompletionRequestFunctionMessage(OpenModel):
    """What a function returned, in the older form of a tool message."""

    role: Literal["function"]
    """Always `function`."""
    content: str | None = None
    """The result."""
    name: str
    """The function that was called."""


ChatCompletionRequestMessage = Annotated[
    ChatCompletionRequestDeveloperMessage
    | ChatCompletionRequestSystemMessage
    | ChatCompletionRequestUserMessage
    | ChatCompletionRequestAssistantMessage
    | ChatCompletionRequestToolMessage
    | ChatCompletionRequestFunctionMessage,
    Discriminator("role"),
]
