"""An item that completes a prompt."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag

from batch_pipelines.api.base import NonNegativeInt, Toggle, Whole
from batch_pipelines.api.sampling import SamplingFields

__all__ = ["FilteredCompletionV2Request", "Prompt"]


def _prompt_shape(value: Any) -> str | None:
    if isinstance(value, str):
        return "<string>"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    return (
        "<strings>" if isinstance(first, str) else "<token lists>" if isinstance(first, list) else "<tokens>"
    )


Tokens = Annotated[list[NonNegativeInt], Field(min_length=1)]

Prompt = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[str], Field(min_length=1), Tag("<strings>")]
    | Annotated[Tokens, Tag("<tokens>")]
    | Annotated[list[Tokens], Field(min_length=1), Tag("<token lists>")],
    Discriminator(
        _prompt_shape,
        custom_error_type="prompt",
        custom_error_message="Input should be a string, strings, token ids or lists of token ids",
    ),
]


def _logprobs(value: Any) -> Any:
    return (1 if value else None) if isinstance(value, bool) else value


class FilteredCompletionV2Request(SamplingFields):
    """One prompt, or several at once, to be completed."""

    prompt: Prompt | None
    """The text to complete: a string, several strings, token ids, or several lists of token ids."""
    echo: Toggle | None = None
    """Put the prompt before the completion."""
    logprobs: Annotated[
        Annotated[int, Whole(ge=0, le=5)] | None,
        BeforeValidator(_logprobs, json_schema_input_type=int | bool | None),
    ] = None
    """Likeliest tokens to report at each position, 0 to 5, besides the chosen one; true means 1."""
    suffix: str | None = None
    """Text that follows the completion; for models that fill in the middle."""
