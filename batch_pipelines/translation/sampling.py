"""Rules on how text is sampled, how much of it, and when it ends."""

import functools
from typing import Any, Final

from batch_pipelines.translation.draft import Draft, Rule, send
from batch_pipelines.translation.forms import sets_a_form
from batch_pipelines.translation.rewrites import keep_best, keep_first, repeat

__all__ = [
    "MAX_STOPS",
    "beam_search",
    "best_of",
    "chat_logprobs",
    "completion_logprobs",
    "early_stopping",
    "length_penalty",
    "min_tokens",
    "n",
    "positive",
    "seed",
    "stop",
    "token_limit",
    "token_log_probs",
    "top_k",
    "top_logprobs",
    "top_p",
]

MAX_STOPS: Final = 4
"""vLLM's `StopParam` takes no more; so does the API it follows."""
COMPLETION_TOKENS: Final = 16
"""What vLLM generates for a completion without `max_tokens`."""
_LENGTH_PENALTY: Final = 50.0
"""A beam's score is divided by length to this power, which leaves the range of floats not far beyond."""

_IGNORED_BY_BEAMS: Final[dict[str, tuple[Any, ...]]] = {
    "stop": ([],),
    "stop_token_ids": ([],),
    "min_tokens": (0,),
    "top_k": (0, -1),
    "top_p": (1,),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "functions": (),
    "tools": ([],),
}
"""What vLLM's beam search does not look at, with the values that say the same as leaving it out."""


def _samples_greedily(draft: Draft) -> bool:
    return draft.item.get("temperature") == 0 and not draft.item.get("use_beam_search")


def n(draft: Draft, name: str, value: int) -> None:
    """Send it; without randomness, ask for one answer and copy it, since the engine refuses to."""
    if value > 1 and _samples_greedily(draft):
        draft.rewrites.append(functools.partial(repeat, times=value))
    else:
        draft.body.setdefault(name, value)  # `best_of` may have asked for more


def best_of(draft: Draft, _: str, value: int) -> str | None:
    """Ask for `best_of` answers and keep the `n` best."""
    wanted = draft.item.get("n") or 1
    if value == 0:
        return None
    if value < wanted:
        return f"is {value}, less than `n`, {wanted}: it is how many are sampled, of which `n` are returned"
    if value == wanted or _samples_greedily(draft):
        return None  # nothing to choose among; without randomness all would be the same
    draft.body["n"] = value
    if draft.item.get("use_beam_search"):
        draft.rewrites.append(functools.partial(keep_first, wanted=wanted, of=value))
        return None
    hide = not draft.item.get("logprobs") and draft.item.get("logprobs") != 0
    if draft.kind == "chat":
        draft.body["logprobs"] = True
    elif hide:
        draft.body["logprobs"] = 0
    draft.rewrites.append(functools.partial(keep_best, wanted=wanted, of=value, hide_logprobs=hide))
    return None


def beam_search(draft: Draft, name: str, value: bool) -> str | None:
    """Send it, if nothing else is set that the search would pass over in silence."""
    if not value:
        return None
    for other, neutral in _IGNORED_BY_BEAMS.items():
        given = draft.item.get(other)
        if given is not None and given not in neutral:
            return f"cannot be combined with `{other}`, which the engine's beam search does not look at"
    draft.body[name] = True
    return None


def early_stopping(draft: Draft, _: str, value: bool | str) -> str | None:
    """Take what the engine's search does anyway: it goes on to the token limit."""
    if value is False:
        return None
    if not draft.item.get("use_beam_search"):
        return "means nothing without `use_beam_search`"
    if value == "never":
        return None
    return (
        "is not supported: the engine searches on to the token limit, which finds no worse answers; "
        "leave it out"
    )


def length_penalty(draft: Draft, name: str, value: float) -> str | None:
    """Send it with a beam search."""
    if not draft.item.get("use_beam_search"):
        return None if value == 1 else "means nothing without `use_beam_search`"
    if abs(value) > _LENGTH_PENALTY:
        return f"is {value:g}; give a number from {-_LENGTH_PENALTY:g} to {_LENGTH_PENALTY:g}"
    draft.body[name] = value
    return None


def positive(draft: Draft, name: str, value: float) -> str | None:
    """Send a number above zero."""
    if value <= 0:
        return f"is {value:g}; it must be above 0, and 1 changes nothing"
    return send(draft, name, value)


def top_p(draft: Draft, name: str, value: float) -> None:
    """Send it; of 0 the engine makes an error, and it means the likeliest token alone."""
    if value == 0:
        draft.body["top_k"] = 1
    else:
        draft.body[name] = value


def top_k(draft: Draft, name: str, value: int) -> None:
    """Send it, unless `top_p` has left the likeliest token alone."""
    if draft.item.get("top_p") != 0:
        draft.body[name] = value


def seed(draft: Draft, name: str, value: int) -> str | None:
    """Send it, unless the engine would take it for none."""
    if value == -1:
        return "is -1, which the engine takes for no seed; give another, or leave it out"
    return send(draft, name, value)


def stop(target: str = "stop") -> Rule:
    """Send stop strings, if the engine takes that many."""

    def rule(draft: Draft, _: str, value: str | list[str]) -> str | None:
        strings = [value] if isinstance(value, str) else value
        if "" in strings:
            return "has an empty string, which would end every text before it begins"
        if len(strings) > MAX_STOPS:
            return f"has {len(strings)} strings; the engine takes {MAX_STOPS} at most"
        draft.body[target] = value
        return None

    return rule


def token_limit(target: str) -> Rule:
    """Send the most tokens to generate; none at all is an answer only where the prompt is echoed."""

    def rule(draft: Draft, _: str, value: int) -> str | None:
        if value == 0 and not (draft.kind == "completion" and draft.item.get("echo")):
            return "must be at least 1" + (" (0 only with `echo`)" if draft.kind == "completion" else "")
        draft.body[target] = value
        return None

    return rule


def min_tokens(draft: Draft, name: str, value: int) -> str | None:
    """Send it, if the limit leaves room for so many."""
    form = sets_a_form(draft.item)
    if value > 0 and form is not None:
        return f"cannot be combined with `{form}`: a text of that form may end sooner"
    limits = ("max_completion_tokens", "max_tokens") if draft.kind == "chat" else ("max_tokens",)
    limit = next((draft.item[limit] for limit in limits if draft.item.get(limit) is not None), None)
    if limit is None and draft.kind == "completion":
        limit = COMPLETION_TOKENS
    if limit is not None and value > limit:
        return f"is {value}, more than the {limit} tokens that may be generated; raise `{limits[-1]}`"
    return send(draft, name, value)


def completion_logprobs(draft: Draft, name: str, value: int | bool) -> None:
    """Send it; older clients send a boolean, where true means 1."""
    if value is not False:
        draft.body[name] = int(value)


def chat_logprobs(draft: Draft, name: str, value: bool) -> None:
    """Send it, if it asks for something."""
    if value:
        draft.body[name] = True


def top_logprobs(draft: Draft, name: str, value: int) -> str | None:
    """Send it with `logprobs`."""
    if value and not draft.item.get("logprobs"):
        return "needs `logprobs`: true"
    if value:
        draft.body[name] = value
    return None


def token_log_probs(draft: Draft, _: str, value: bool) -> None:
    """Ask for the chosen tokens' own log probabilities: one entry for each token."""
    if value:
        draft.body["logprobs"] = 0
