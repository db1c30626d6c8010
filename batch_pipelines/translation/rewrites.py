"""What is done to an engine's answer, where a field is emulated.

Each function takes the answer and returns it changed; `translate` puts together which apply.
"""

import math
from collections.abc import Mapping
from typing import Any

from batch_pipelines.translation.draft import Body

__all__ = [
    "as_function_call",
    "keep_best",
    "keep_first",
    "mean_log_probability",
    "repeat",
    "without_prompt_logprobs",
]

Choice = dict[str, Any]


def keep_best(body: Body, *, wanted: int, of: int, hide_logprobs: bool) -> Body:
    """Keep the likeliest choices of each prompt, best first.

    Args:
        body: An answer with `of` choices for each prompt.
        wanted: Choices to keep for each.
        of: Choices there are for each.
        hide_logprobs: Whether log probabilities were only asked for to rank by.
    """
    kept: list[Choice] = []
    for group in _by_prompt(body, of):
        kept += sorted(group, key=mean_log_probability, reverse=True)[:wanted]
    if hide_logprobs:
        kept = [{**choice, "logprobs": None, **_without_prompt_logprobs(choice)} for choice in kept]
    return {**body, "choices": _numbered(kept)}


def keep_first(body: Body, *, wanted: int, of: int) -> Body:
    """Keep the first choices of each prompt; a beam search has sorted them."""
    kept = [choice for group in _by_prompt(body, of) for choice in group[:wanted]]
    return {**body, "choices": _numbered(kept)}


def repeat(body: Body, *, times: int) -> Body:
    """Give each choice several times: without randomness they would all be the same."""
    return {**body, "choices": _numbered([choice for choice in body["choices"] for _ in range(times)])}


def without_prompt_logprobs(body: Body) -> Body:
    """Leave out the log probabilities of the prompt's tokens."""
    return {**body, "prompt_logprobs": None}


def as_function_call(body: Body) -> Body:
    """Give the one tool call back in the form that was asked in."""
    return {**body, "choices": [_choice_with_function_call(choice) for choice in body["choices"]]}


def mean_log_probability(choice: Mapping[str, Any]) -> float:
    """Mean log probability of a choice's generated tokens; minus infinity if there are none.

    Raises:
        KeyError: The choice has no log probabilities.
    """
    logprobs = choice["logprobs"]
    if logprobs is None:
        raise KeyError("logprobs")
    if "content" in logprobs:
        values = [token["logprob"] for token in logprobs["content"] or []]
    else:
        # With `echo` the prompt's tokens come first, and are the same for all choices.
        values = logprobs["token_logprobs"][len(choice.get("prompt_logprobs") or []) :]
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else -math.inf


def _by_prompt(body: Body, of: int) -> list[list[Choice]]:
    choices = body["choices"]
    if len(choices) % of:
        raise ValueError(f"the engine gave {len(choices)} choices, not {of} for each prompt")
    return [choices[start : start + of] for start in range(0, len(choices), of)]


def _numbered(choices: list[Choice]) -> list[Choice]:
    return [{**choice, "index": index} for index, choice in enumerate(choices)]


def _without_prompt_logprobs(choice: Choice) -> Choice:
    return {"prompt_logprobs": None} if "prompt_logprobs" in choice else {}


def _choice_with_function_call(choice: Choice) -> Choice:
    message = {key: value for key, value in choice["message"].items() if key != "tool_calls"}
    calls = choice["message"].get("tool_calls")
    if not calls:
        return {**choice, "message": message}
    reason = choice["finish_reason"]
    return {
        **choice,
        "message": {**message, "function_call": calls[0]["function"]},
        "finish_reason": "function_call" if reason == "tool_calls" else reason,
    }
