"""From an item to the request an engine takes: one rule for each field of each kind of item.

Only fields that are set are sent, so that an unset one keeps the engine's default or the model's own
generation settings. What the engine cannot do is refused by name, in that item's place in the output.
The other way, from the engine's reply to a record, is in `batch_pipelines.records`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.engines.protocol import EngineRequest

__all__ = ["CHAT_RULES", "COMPLETION_RULES", "V1_RULES", "Rule", "TranslationContext", "translate"]

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"

Item = Mapping[str, Any]
Body = dict[str, Any]
Rule = Callable[[Body, str, Any, Item], str | None]
"""Puts a field into the engine's request; returns why that cannot be done, if it cannot."""


@dataclass(frozen=True, slots=True)
class TranslationContext:
    """What is the same for all items of a job.

    Attributes:
        v1_header: The fields beside `prompts` of V1 content.
    """

    v1_header: Item | None = None


def translate(
    kind: ItemKind, item: Any, *, served_model: str, defaults: TranslationContext
) -> EngineRequest | ItemError:
    """The engine's request for one valid item, or why there is none.

    Args:
        kind: What the item is.
        item: The item's parsed JSON; for V1, one prompt.
        served_model: The name the engine knows the model by.
        defaults: What is the same for all items of the job.
    """
    body: Body = {"model": served_model}
    if kind == "v1":
        body["prompt"] = item
        item = defaults.v1_header or {}
    path, rules = _TARGETS[kind]
    for name, value in item.items():
        rule = rules.get(name)
        if rule is None or value is None:
            continue
        reason = rule(body, name, value, item)
        if reason is not None:
            return ItemError(message=f"{name}: {reason}", type="BadRequestError", param=name, code=400)
    return EngineRequest(path, orjson.dumps(body))


def _send(body: Body, name: str, value: Any, _: Item) -> None:
    body[name] = value


def _no_effect(_: Body, __: str, ___: Any, ____: Item) -> None:
    """Accepted, and rightly without effect on the text."""


def _send_as(target: str) -> Rule:
    def rule(body: Body, _: str, value: Any, __: Item) -> None:
        body[target] = value

    return rule


def _send_unless(*neutral: Any) -> Rule:
    """Send a value, unless it says the same as leaving the field out and engines refuse it."""

    def rule(body: Body, name: str, value: Any, _: Item) -> None:
        if value not in neutral:
            body[name] = value

    return rule


def _refuse_unless(*neutral: Any, why: str) -> Rule:
    """Refuse a value, unless it says the same as leaving the field out."""

    def rule(_: Body, __: str, value: Any, ___: Item) -> str | None:
        return None if value in neutral else why

    return rule


def _best_of(_: Body, __: str, value: Any, item: Item) -> str | None:
    wanted = item.get("n") or 1
    if value in (0, 1, wanted):
        return None
    return f"{value} candidates for {wanted} answers are not supported; leave it out, or set it to `n`"


def _response_format(body: Body, name: str, value: Any, item: Item) -> str | None:
    body[name] = value
    guided = next((field for field in _GUIDED if item.get(field) is not None), None)
    if guided is None or value.get("type") == "text":
        return None
    return f"cannot be combined with `{guided}`; each sets the form of the text"


def _guided(body: Body, name: str, value: Any, item: Item) -> str | None:
    others = [field for field in _GUIDED if field != name and item.get(field) is not None]
    if others:
        return f"cannot be combined with `{others[0]}`; each sets the form of the text"
    body.setdefault("structured_outputs", {})[_GUIDED[name]] = value
    return None


def _whitespace(body: Body, _: str, value: Any, item: Item) -> None:
    if item.get("guided_json") is not None:
        body.setdefault("structured_outputs", {})["whitespace_pattern"] = value


def _completion_logprobs(body: Body, name: str, value: Any, _: Item) -> None:
    # Older clients send a boolean, where true means 1.
    if value is not False:
        body[name] = int(value)


def _messages(body: Body, name: str, value: Any, _: Item) -> None:
    # Clients that dump their objects send `"name": null`, and the engine refuses such a message.
    body[name] = [_without_nulls(message) if None in message.values() else message for message in value]


def _without_nulls(message: Item) -> Item:
    return {key: value for key, value in message.items() if value is not None or key == "content"}


def _continue_final_message(body: Body, name: str, value: Any, item: Item) -> None:
    body[name] = value
    if value and item.get("add_generation_prompt") is None:
        # The engine's default, true, would contradict it.
        body["add_generation_prompt"] = False


def _tool_choice(body: Body, name: str, value: Any, item: Item) -> None:
    if item.get("tools") or value not in ("auto", "none"):
        body[name] = value


def _function_call(_: Body, __: str, value: Any, item: Item) -> str | None:
    return None if value in ("auto", "none") and not item.get("functions") else _OLD_TOOLS


def _token_logprobs(body: Body, _: str, value: Any, __: Item) -> None:
    if value:
        body["logprobs"] = 0  # the chosen token only: one entry for each token


_GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
_OLD_TOOLS = "is not supported; use `tools` and `tool_choice`"

_SHARED_RULES: dict[str, Rule] = {
    "best_of": _best_of,
    "top_k": _send,
    "min_p": _send,
    "use_beam_search": _send,
    "length_penalty": _send,
    "repetition_penalty": _send,
    "early_stopping": _refuse_unless(False, why="is not supported; the engine has its own rule"),
    "stop_token_ids": _send,
    "include_stop_str_in_output": _send,
    "ignore_eos": _send,
    "min_tokens": _send,
    "skip_special_tokens": _send,
    "spaces_between_special_tokens": _send,
    "add_special_tokens": _send,
    "response_format": _response_format,
    **dict.fromkeys(_GUIDED, _guided),
    "guided_decoding_backend": _no_effect,
    "guided_whitespace_pattern": _whitespace,
    "model": _no_effect,
    "frequency_penalty": _send,
    "logit_bias": _send,
    "max_tokens": _send,
    "n": _send,
    "presence_penalty": _send,
    "seed": _send,
    "stop": _send,
    "stream": _no_effect,
    "stream_options": _no_effect,
    "temperature": _send,
    "top_p": _send,
    "user": _no_effect,
}

COMPLETION_RULES: Final[dict[str, Rule]] = {
    **_SHARED_RULES,
    "prompt": _send,
    "echo": _send,
    "logprobs": _completion_logprobs,
    "suffix": _send_unless(""),
}

CHAT_RULES: Final[dict[str, Rule]] = {
    **_SHARED_RULES,
    "messages": _messages,
    "max_completion_tokens": _send,
    "logprobs": _send,
    "top_logprobs": _send,
    "echo": _send,
    "add_generation_prompt": _send,
    "continue_final_message": _continue_final_message,
    "documents": _send,
    "chat_template": _send,
    "chat_template_kwargs": _send,
    "priority": _send_unless(0),
    "metadata": _no_effect,
    "service_tier": _no_effect,
    "modalities": _refuse_unless([], ["text"], why="text is the only kind of output supported"),
    "reasoning_effort": _send,
    "web_search_options": _refuse_unless(why="the engine cannot search the web"),
    "audio": _refuse_unless(why="the engine cannot speak"),
    "store": _no_effect,
    "prediction": _no_effect,
    "tools": _send_unless([]),
    "tool_choice": _tool_choice,
    "parallel_tool_calls": _send,
    "function_call": _function_call,
    "functions": _refuse_unless(why=_OLD_TOOLS),
}

V1_RULES: Final[dict[str, Rule]] = {
    "max_new_tokens": _send_as("max_tokens"),
    "temperature": _send,
    "stop_sequences": _send_as("stop"),
    "return_token_log_probs": _token_logprobs,
    "presence_penalty": _send,
    "frequency_penalty": _send,
    "top_k": _send,
    "top_p": _send,
    "skip_special_tokens": _send,
}

_TARGETS: dict[ItemKind, tuple[str, dict[str, Rule]]] = {
    "completion": (COMPLETION_PATH, COMPLETION_RULES),
    "chat": (CHAT_PATH, CHAT_RULES),
    "v1": (COMPLETION_PATH, V1_RULES),
}
