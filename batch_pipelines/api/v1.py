"""The V1 form of content: plain prompts under one set of sampling fields."""

from typing import Annotated

from pydantic import Field, Strict

from batch_pipelines.api.base import ClosedModel, NonNegativeInt, Number, Toggle, Whole

__all__ = ["CreateBatchCompletionsV1RequestContent", "V1Header"]

V1Penalty = Annotated[float, Strict(), Field(ge=0, le=2)]


class V1Header(ClosedModel):
    """Everything of V1 content but its prompts: what a stream of prompts is read under."""

    max_new_tokens: NonNegativeInt
    """Most tokens to generate for each prompt."""
    temperature: Annotated[float, Strict(), Field(ge=0, le=1)]
    """Randomness of sampling, 0 to 1; 0 takes the likeliest token each time."""
    stop_sequences: list[str] | None = None
    """Strings that end the text."""
    return_token_log_probs: Toggle | None = None
    """Report each generated token with its log probability."""
    presence_penalty: V1Penalty | None = None
    """0 to 2; above 0 discourages tokens that have come up at all."""
    frequency_penalty: V1Penalty | None = None
    """0 to 2; above 0 discourages tokens the more often they have come up."""
    top_k: Annotated[int, Whole(ge=-1)] | None = None
    """Sample among this many likeliest tokens; -1 for all."""
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    """Sample among the likeliest tokens that together have this probability, above 0 and at most 1."""
    skip_special_tokens: Toggle | None = None
    """Leave special tokens out of the text."""


class CreateBatchCompletionsV1RequestContent(V1Header):
    """Prompts to complete, all under the same sampling fields; each answer is a `CompletionOutput`."""

    prompts: list[str]
    """The texts to complete; no chat template is applied."""
