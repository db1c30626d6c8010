"""The form an answer must have: free text, any JSON, or JSON of a given schema."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from batch_pipelines.api.base import OpenModel, Toggle

__all__ = [
    "JsonSchema",
    "ResponseFormat",
    "ResponseFormatJsonObject",
    "ResponseFormatJsonSchema",
    "ResponseFormatText",
]


class ResponseFormatText(OpenModel):
    """Free text."""

    type: Literal["text"]
    """Always `text`."""


class JsonSchema(OpenModel):
    """A named JSON Schema."""

    description: str | None = None
    """What the answer is for; a hint to the model."""
    name: str
    """Up to 64 letters, digits, underscores and dashes."""
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    """The schema itself."""
    strict: Toggle | None = None
    """Whether the answer must keep to the schema exactly."""


class ResponseFormatJsonSchema(OpenModel):
    """JSON of a given schema."""

    type: Literal["json_schema"]
    """Always `json_schema`."""
    json_schema: JsonSchema
    """The schema and its name."""


class ResponseFormatJsonObject(OpenModel):
    """Any JSON object."""

    type: Literal["json_object"]
    """Always `json_object`."""


_TAGS = {"text": "<text>", "json_schema": "<schema>", "json_object": "<object>"}


def _format_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return _TAGS.get(kind) if isinstance(kind, str) else None


ResponseFormat = Annotated[
    Annotated[ResponseFormatText, Tag("<text>")]
    | Annotated[ResponseFormatJsonSchema, Tag("<schema>")]
    | Annotated[ResponseFormatJsonObject, Tag("<object>")],
    Discriminator(
        _format_kind,
        custom_error_type="response_format",
        custom_error_message="Input should be an object of `type` 'text', 'json_object' or 'json_schema'",
    ),
]
