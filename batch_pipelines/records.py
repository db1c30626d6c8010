"""From an engine's reply to the record of an item: one line of strict JSON, whatever the engine said.

A record is the engine's own answer with the item's extra keys beside it, the V1 form of it, or an
error object. The other way, from an item to the engine's request, is in `batch_pipelines.translation`; which
field an engine's error is about, in `batch_pipelines.engine_errors`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batch_pipelines.api.items import ItemKind, extra_keys
from batch_pipelines.api.output import ItemError
from batch_pipelines.engine_errors import engine_error
from batch_pipelines.engines.protocol import EngineReply
from batch_pipelines.translation.draft import Rewrite

__all__ = ["RESERVED_KEYS", "Record", "build_record", "error_record"]

RESERVED_KEYS: Final = frozenset(
    {
        "choices",
        "created",
        "error",
        "id",
        "item",
        "kv_transfer_params",
        "model",
        "object",
        "prompt_logprobs",
        "prompt_token_ids",
        "service_tier",
        "system_fingerprint",
        "tool_trace",
        "usage",
    }
)
"""Keys that are the engine's in a record. An item's extra key of such a name is echoed inside `item`, whether
its answer is good or an error, so that a reader always finds it in the same place."""

_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Record:
    """One item's record.

    Attributes:
        data: One line of JSON, without a newline.
        failed: Whether it is an error record.
        error: The error, if it is one.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens generated.
    """

    data: bytes
    failed: bool
    error: ItemError | None
    prompt_tokens: int
    completion_tokens: int


def build_record(kind: ItemKind, item: Any, reply: EngineReply, rewrites: Sequence[Rewrite] = ()) -> Record:
    """The record of an item the engine replied to.

    Args:
        kind: What the item is.
        item: The item's parsed JSON; for V1, one prompt.
        reply: The engine's reply, of any status.
        rewrites: What is done to a good answer, in this order.
    """
    extras = extra_keys(kind, item)
    body, clean = _parse(reply.body)
    if not 200 <= reply.status < 300 or not isinstance(body, dict) or not body.get("choices"):
        return error_record(extras, _error_of(kind, item, reply, body))
    try:
        for rewrite in rewrites:
            body, clean = rewrite(body), False
    except (KeyError, TypeError, ValueError, IndexError):
        return error_record(extras, _error_of(kind, item, reply, body))
    usage = body.get("usage") or {}
    prompt_tokens = usage.get("prompt_tokens") or 0
    completion_tokens = usage.get("completion_tokens") or 0
    if kind == "v1":
        output = _v1_output(body, prompt_tokens, completion_tokens)
        if output is None:
            return error_record(extras, _error_of(kind, item, reply, body))
        data = _dump(output)
    elif extras or not clean:
        data = _dump(_with_extras(body, extras))
    else:
        data = reply.body
    return Record(data, False, None, prompt_tokens, completion_tokens)


def error_record(extras: Mapping[str, Any], error: ItemError) -> Record:
    """The record of an item without an answer.

    Args:
        extras: The item's extra keys.
        error: Why it has none.
    """
    shown = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return Record(_dump(_with_extras({"error": shown}, extras)), True, error, 0, 0)


def _with_extras(body: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    if not extras:
        return body
    beside = {key: value for key, value in extras.items() if key not in RESERVED_KEYS and key not in body}
    inside = {key: value for key, value in extras.items() if key not in beside}
    return {**body, **beside, **({"item": inside} if inside else {})}


def _v1_output(body: Mapping[str, Any], prompt_tokens: int, completion_tokens: int) -> dict[str, Any] | None:
    """The V1 form of an answer; none if the answer lacks what it needs."""
    try:
        choice = body["choices"][0]
        logprobs = choice.get("logprobs")
        tokens = None
        if logprobs is not None:
            pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
            tokens = [{"token": token, "log_prob": log_prob} for token, log_prob in pairs]
        trace = {"tool_trace": body["tool_trace"]} if "tool_trace" in body else {}
        return {
            "text": choice["text"],
            "num_prompt_tokens": prompt_tokens,
            "num_completion_tokens": completion_tokens,
            "tokens": tokens,
            **trace,
        }
    except (KeyError, TypeError, ValueError):
        return None


def _error_of(kind: ItemKind, item: Any, reply: EngineReply, body: Any) -> ItemError:
    found = body.get("error") if isinstance(body, dict) else None
    fallback = reply.status if reply.status >= 400 else 500
    if not isinstance(found, dict):
        text = reply.body[:_SHOWN].decode(errors="replace")
        return ItemError(
            message=f"the engine answered with status {reply.status}: {text}",
            type="BadRequestError" if fallback < 500 else "InternalServerError",
            param=None,
            code=fallback,
        )
    return engine_error(kind, item, found, status=fallback)


def _parse(body: bytes) -> tuple[Any, bool]:
    """A reply's JSON, and whether its bytes can stand in a record as they are."""
    try:
        return orjson.loads(body), b"\n" not in body
    except orjson.JSONDecodeError:
        pass
    try:
        return _strict(json.loads(body.decode(errors="replace"))), False
    except (ValueError, RecursionError):
        return None, False


def _strict(value: Any) -> Any:
    """What strict JSON holds: no NaN or infinity, no half surrogate pair, no integer beyond 64 bits."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_strict(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_strict(entry) for entry in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1023 else None
    return value


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return orjson.dumps(_strict(value))
