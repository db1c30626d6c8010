"""Token ids of an item against the model's vocabulary.

An id beyond the embedding is an error within the engine's step on a GPU, which ends the engine; vLLM 0.32
lets such a prompt pass if the tokenizer is larger than the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.refusal import refusal

__all__ = ["check_logit_bias", "check_prompt_ids", "check_stop_ids"]


def check_prompt_ids(prompt: Sequence[Any], size: int) -> ItemError | None:
    """Check a prompt that is token ids or lists of them.

    Args:
        prompt: None of the lists is empty, no id is negative.
        size: Tokens the model has.
    """
    several = isinstance(prompt[0], list)
    for at, ids in enumerate(prompt if several else [prompt]):
        highest = max(ids)
        if highest >= size:
            return refusal(f"prompt[{at}]" if several else "prompt", _beyond(highest, size))
    return None


def check_stop_ids(ids: Sequence[int], size: int) -> ItemError | None:
    """Check `stop_token_ids`."""
    for token in ids:
        if not 0 <= token < size:
            return refusal("stop_token_ids", _beyond(token, size))
    return None


def check_logit_bias(bias: Mapping[str, Any], size: int | None) -> ItemError | None:
    """Check the keys of `logit_bias`.

    Args:
        bias: Token ids, as strings, and what is added.
        size: Tokens the model has; None if that is not known.
    """
    for key in bias:
        try:
            token = int(key)
        except ValueError:
            return refusal(
                "logit_bias", f"has the key {key[:60]!r}, which is no token id; ids are whole numbers"
            )
        if size is not None and not 0 <= token < size:
            return refusal("logit_bias", _beyond(token, size))
    return None


def _beyond(token: int, size: int) -> str:
    return f"has the token id {token}; the model has {size:,} tokens, from 0 to {size - 1}"
