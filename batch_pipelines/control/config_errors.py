"""Dagster's complaints about a run config, as errors of the request inside it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batch_pipelines.api.errors import FieldError, pointer
from batch_pipelines.run_config import ASSET

__all__ = ["field_errors"]

_REQUEST = ("ops", ASSET, "config")


def field_errors(errors: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """The errors of a `RunConfigValidationInvalid`, each by JSON pointer into the request."""
    return [found for error in errors for found in _errors_of(error)]


def _errors_of(error: Mapping[str, Any]) -> Iterator[FieldError]:
    path = tuple(_part(entry) for entry in error["stack"]["entries"])
    if path[: len(_REQUEST)] != _REQUEST:
        yield FieldError("", f"run config at {'.'.join(map(str, path)) or 'its root'}: {error['message']}")
        return
    inside = path[len(_REQUEST) :]
    kind = error["__typename"]
    if kind == "FieldNotDefinedConfigError":
        yield FieldError(pointer((*inside, error["fieldName"])), "unknown field")
    elif kind == "FieldsNotDefinedConfigError":
        yield from (FieldError(pointer((*inside, name)), "unknown field") for name in error["fieldNames"])
    elif kind == "MissingFieldConfigError":
        yield FieldError(pointer((*inside, error["field"]["name"])), "is required")
    elif kind == "MissingFieldsConfigError":
        yield from (FieldError(pointer((*inside, f["name"])), "is required") for f in error["fields"])
    else:
        yield FieldError(pointer(inside), error["message"])


def _part(entry: Mapping[str, Any]) -> int | str:
    if "listIndex" in entry:
        return int(entry["listIndex"])
    return str(entry["fieldName"] if "fieldName" in entry else entry["mapKey"])
