"""An engine's error, told as one about the item: which of its fields, in the contract's own names.

vLLM names the parameter of some errors, of others only within the sentence, and of those its own types
refuse by a path into its own classes.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.translation.forms import sets_a_form

__all__ = ["engine_error"]

_FORM: Final = "<form>"
_PROMPT: Final = "<prompt>"
_BY_TEXT: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"^max_tokens=|max_tokens must"), "max_tokens"),
    (re.compile(r"context length|input tokens|longer than the maximum model length"), _PROMPT),
    (re.compile(r"out of vocabulary|multimodal|conversation|[Cc]hat template|\b[Ii]mages?\b"), _PROMPT),
    (re.compile(r"^(?P<field>[a-z_]+) (?:must|cannot|should|contains?) "), ""),
    (re.compile(r"[Gg]rammar|[Ss]chema|[Rr]egex|structured.outputs|\bchoice\b"), _FORM),
)
_NO_ROOM: Final = "max_tokens must be at least 1, got 0"
_V1_NAMES: Final = {"max_tokens": "max_new_tokens", "stop": "stop_sequences"}
_CLASS: Final = re.compile(r"[A-Z]\w*|function-\w+|list\[.*|str|int|float|bool|constrained-\w+")
_REASON: Final = re.compile(r"'msg': (?P<quote>['\"])(?P<text>.*?)(?P=quote), 'input'")
_MANY: Final = re.compile(r"^\d+ validation errors?:")


def engine_error(kind: ItemKind, item: Any, found: Mapping[str, Any], *, status: int) -> ItemError:
    """The error of an item that the engine refused.

    Args:
        kind: What the item is.
        item: The item's parsed JSON; for V1, one prompt.
        found: The engine's error object.
        status: The HTTP status it came with.
    """
    message = str(found.get("message") or f"the engine answered with status {status}")
    code = found.get("code")
    if _NO_ROOM in message:
        # No item asks for none: vLLM has lowered what was asked for to what the prompt leaves.
        message = "has no room for an answer beside it in the model's context; shorten it"
        param = _param(kind, item, message, _PROMPT)
    else:
        param = _param(kind, item, message, found.get("param"))
    if _MANY.match(message) and (reason := _REASON.search(message)) is not None:
        message = reason["text"]
    if param is not None and not _names(message, param):
        message = f"{param}: {message}"
    return ItemError(
        message=message,
        type="BadRequestError" if status < 500 else str(found.get("type") or "InternalServerError"),
        param=param,
        code=code if isinstance(code, int) else status,
    )


def _param(kind: ItemKind, item: Any, message: str, given: Any) -> str | None:
    field = _field_of_path(given) if isinstance(given, str) else _field_in(message)
    if field in ("input_tokens", "prompt_embeds", _PROMPT):
        field = "messages" if kind == "chat" else "prompt"
    if field in (_FORM, "structured_outputs"):
        field = _form_of(item)
    return _V1_NAMES.get(field, field) if kind == "v1" and field is not None else field


def _field_in(message: str) -> str | None:
    for pattern, field in _BY_TEXT:
        match = pattern.search(message)
        if match is not None:
            return field or match["field"]
    return None


def _form_of(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    return sets_a_form(item) or next((name for name in ("tools", "functions") if item.get(name)), None)


def _field_of_path(path: str) -> str:
    """`body.messages.0.SomeClass.content` as `messages[0].content`."""
    text = ""
    for part in path.removeprefix("body.").split("."):
        if part.isdigit():
            text += f"[{part}]"
        elif not _CLASS.fullmatch(part):
            text += f".{part}" if text else part
    return text or path


def _names(message: str, param: str) -> bool:
    return param.partition("[")[0].partition(".")[0] in message
