"""Fields that prompts and chats share: how to sample, when to stop, and which form the text must have.

An unset field stays unset: the engine's default, or the model's own generation settings, then apply.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Strict, Tag

from batch_pipelines.api.base import Fraction, Int, NonNegativeInt, Number, OpenModel, Toggle, Whole
from batch_pipelines.api.response_format import ResponseFormat

__all__ = ["ChatCompletionStreamOptions", "SamplingFields", "Stop"]

Penalty = Annotated[float, Strict(), Field(ge=-2, le=2)]
Bias = Annotated[float, Strict(), Field(ge=-100, le=100)]


class ChatCompletionStreamOptions(OpenModel):
    """Options of a streamed answer; a batch never streams."""

    include_usage: Toggle | None = None
    """Whether a stream would end with token counts; no effect here."""


def _stop_shape(value: Any) -> str | None:
    if isinstance(value, str):
        return "<string>"
    return "<strings>" if isinstance(value, list) else None


Stop = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[str], Tag("<strings>")],
    Discriminator(
        _stop_shape,
        custom_error_type="stop",
        custom_error_message="Input should be a string or a list of strings",
    ),
]

EarlyStopping = Annotated[
    Annotated[bool, Strict(), Tag("<bool>")] | Annotated[Literal["never"], Tag("<never>")],
    Discriminator(
        lambda value: "<bool>" if isinstance(value, bool) else "<never>" if value == "never" else None,
        custom_error_type="early_stopping",
        custom_error_message="Input should be true, false or 'never'",
    ),
]


class SamplingFields(OpenModel):
    """The fields every kind of item but a V1 prompt has."""

    best_of: Annotated[int, Whole(ge=0, le=20)] | None = None
    """Sequences to sample, 0 to 20, of which the `n` best are returned; in a beam search, the beams."""
    top_k: Annotated[int, Whole(ge=-1)] | None = None
    """Sample among this many likeliest tokens; -1 for all."""
    min_p: Fraction | None = None
    """Leave out tokens with less than this fraction of the likeliest one's probability, 0 to 1."""
    use_beam_search: Toggle | None = None
    """Search with beams in place of sampling."""
    length_penalty: Number | None = None
    """Exponent on length when a beam search compares sequences; above 1 favours long ones."""
    repetition_penalty: Number | None = None
    """Above 1 discourages tokens of the prompt and the text so far, below 1 encourages them."""
    early_stopping: EarlyStopping | None = None
    """When a beam search ends: at enough candidates (true), once better ones are unlikely (false), or
    once they are impossible ("never")."""
    stop_token_ids: list[Int] | None = None
    """Tokens that end the text, by id."""
    include_stop_str_in_output: Toggle | None = None
    """Whether the text keeps the stop string that ended it."""
    ignore_eos: Toggle | None = None
    """Go on past the end-of-sequence token, up to the token limit."""
    min_tokens: NonNegativeInt | None = None
    """Tokens to generate before an end-of-sequence or stop token counts."""
    skip_special_tokens: Toggle | None = None
    """Leave special tokens out of the text."""
    spaces_between_special_tokens: Toggle | None = None
    """Put spaces between special tokens in the text."""
    add_special_tokens: Toggle | None = None
    """Add special tokens, such as one that begins a text, to the prompt; most chat templates already do."""
    response_format: ResponseFormat | None = None
    """The form the text must have: free text, JSON, or JSON of a schema."""
    guided_json: dict[str, Any] | None = None
    """JSON Schema the text must keep to."""
    guided_regex: str | None = None
    """Regular expression the text must match."""
    guided_choice: list[str] | None = None
    """Strings one of which the text must be."""
    guided_grammar: str | None = None
    """Context-free grammar the text must follow."""
    guided_decoding_backend: str | None = None
    """Engine part that enforces the form, such as `xgrammar`; the same for all items of a job."""
    guided_whitespace_pattern: str | None = None
    """Regular expression for white space between the parts of `guided_json`."""
    model: str | None = None
    """The model; the job's `model_config.model` answers every item, whatever it says."""
    frequency_penalty: Penalty | None = None
    """-2 to 2; above 0 discourages tokens the more often they have come up."""
    logit_bias: dict[str, Bias] | None = None
    """Added to tokens' logits: token id to a number from -100 (never) to 100 (always)."""
    max_tokens: NonNegativeInt | None = None
    """Most tokens to generate."""
    n: Annotated[int, Whole(ge=1, le=128)] | None = None
    """Answers to generate, 1 to 128."""
    presence_penalty: Penalty | None = None
    """-2 to 2; above 0 discourages tokens that have come up at all."""
    seed: Annotated[int, Whole(ge=-(2**63), le=2**63 - 1)] | None = None
    """Makes sampling repeatable, as far as the engine can."""
    stop: Stop | None = None
    """A string, or several, that end the text."""
    stream: Toggle | None = None
    """No effect: a batch never streams."""
    stream_options: ChatCompletionStreamOptions | None = None
    """No effect: a batch never streams."""
    temperature: Annotated[float, Strict(), Field(ge=0, le=2)] | None = None
    """Randomness of sampling, 0 to 2; 0 takes the likeliest token each time."""
    top_p: Fraction | None = None
    """Sample among the likeliest tokens that together have this probability, 0 to 1."""
    user: str | None = None
    """The end user's identifier; no effect."""
