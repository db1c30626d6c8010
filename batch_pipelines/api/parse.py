"""From bytes to a request, or to every reason why they are none."""

import json
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from batch_pipelines.api.errors import FieldError, Path, RequestInvalid, describe, pointer
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.api.names import nearest, suggestion
from batch_pipelines.api.nesting import MAX_DEPTH, too_deep
from batch_pipelines.api.request import CreateBatchCompletionsV2Request, ToolConfig
from batch_pipelines.api.v1 import CreateBatchCompletionsV1RequestContent, V1Header

__all__ = ["parse_request", "parse_v1_header"]


def _wire_names(model: Any) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


_REQUEST = _wire_names(CreateBatchCompletionsV2Request)
_MODEL_CONFIG = _wire_names(BatchCompletionsModelConfig)
_NESTED = {
    "tool_config": _wire_names(ToolConfig),
    "content": _wire_names(CreateBatchCompletionsV1RequestContent),
}


def parse_request(data: bytes | str | Mapping[str, Any]) -> CreateBatchCompletionsV2Request:
    """Check a request.

    Args:
        data: The request as JSON, or parsed already.

    Raises:
        RequestInvalid: With every error at once; bad JSON is the only error then, with its line and column.
    """
    value = _load(data)
    try:
        return CreateBatchCompletionsV2Request.model_validate(value)
    except ValidationError as error:
        raise RequestInvalid(
            [FieldError(pointer(path), message) for path, message in describe(error, _hint)]
        ) from None


def parse_v1_header(fields: Mapping[str, Any]) -> V1Header:
    """Check the fields of V1 content beside its prompts.

    Raises:
        RequestInvalid: With every error at once.
    """
    try:
        return V1Header.model_validate(_load(fields))
    except ValidationError as error:
        described = describe(error, lambda path: suggestion(str(path[-1]), V1Header.model_fields))
        raise RequestInvalid([FieldError(pointer(path), message) for path, message in described]) from None


def _load(data: bytes | str | Mapping[str, Any]) -> Any:
    try:
        # A parsed request goes through JSON too, so that it is held to the same rules (no NaN, no tuples).
        raw = json.dumps(data, allow_nan=False) if isinstance(data, Mapping) else data
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise RequestInvalid([FieldError("", message)]) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestInvalid([FieldError("", f"is not valid JSON: {error}")]) from None
    if not isinstance(value, dict):
        raise RequestInvalid([FieldError("", "must be a JSON object")])
    if too_deep(raw if isinstance(raw, bytes) else raw.encode(), value):
        raise RequestInvalid([FieldError("", f"is nested deeper than {MAX_DEPTH} levels")])
    return value


def _hint(path: Path) -> str:
    name = str(path[-1])
    if len(path) > 1:
        return suggestion(name, _NESTED.get(str(path[0]), ()))
    if name in _MODEL_CONFIG:
        return f" (did you mean `model_config.{name}`?)"
    if nearest(name, _REQUEST) is None and (match := nearest(name, _MODEL_CONFIG)):
        return f" (did you mean `model_config.{match}`?)"
    return suggestion(name, _REQUEST)
