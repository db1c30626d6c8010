"""The launch config's schema, derived from the request's pydantic model.

`dagster.Config` cannot hold a key named `model_config`, unions or nulls, and resolves
`{"env": ...}` in text fields from the worker's environment, which would let a request read it. A
schema of plain Dagster types takes the request's own JSON as it is. Structure is checked at launch,
bounds by the first op.
"""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import dagster as dg
from pydantic import BaseModel

__all__ = ["config_shape"]

_SCALARS: dict[object, Any] = {str: dg.String, int: dg.Int, float: dg.Float, bool: dg.Bool}


def config_shape(model: type[BaseModel]) -> dg.Shape | dg.Permissive:
    """The Dagster config type that takes what `model` takes, by alias; defaults are not copied."""
    fields = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        config_type = _config_type(info.annotation, f"{model.__name__}_{key}")
        if not info.is_required():
            config_type = _or_null(config_type)  # clients send null for what they leave unset
        fields[key] = dg.Field(config_type, is_required=info.is_required(), description=info.description)
    return dg.Shape(fields) if model.model_config.get("extra") == "forbid" else dg.Permissive(fields)


def _config_type(annotation: Any, name: str) -> Any:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _config_type(args[0], name)
    if origin in (Union, types.UnionType):
        return _union_type(args, name)
    if origin is Literal:
        return dg.Enum(name, [dg.EnumValue(value) for value in args])
    if origin is list:
        return dg.Array(_config_type(args[0], name))
    if origin is dict and args[0] is str:
        return dg.Permissive() if args[1] is Any else dg.Map(str, _config_type(args[1], name))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return config_shape(annotation)
    return _SCALARS.get(annotation, dg.Any)


def _union_type(members: tuple[Any, ...], name: str) -> Any:
    inner = [member for member in members if member is not types.NoneType]
    if len(inner) != 1:
        return dg.Any
    config_type = _config_type(inner[0], name)
    return config_type if len(inner) == len(members) else _or_null(config_type)


def _or_null(config_type: Any) -> Any:
    return (
        config_type
        if config_type is dg.Any or isinstance(config_type, dg.Noneable)
        else dg.Noneable(config_type)
    )
