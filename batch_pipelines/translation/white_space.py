"""JSON schemas that can be regular expressions with a white space of their own, and no others.

`outlines_core` makes the expression. It passes over keywords it does not know, and an object's optional
properties make its expression quadratically long, so only schemas that it keeps to whole are given to it.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from outlines_core.json_schema import build_regex_from_schema

__all__ = ["expression_of"]

_MOST_BYTES: Final = 2**16
_DEEPEST: Final = 6
_MOST_REPEATED: Final = 1000
_SCALARS: Final = ("boolean", "integer", "null", "number")
_ANYWHERE: Final = {"type", "title", "description"}
_BY_TYPE: Final[dict[str, set[str]]] = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
    **{name: set() for name in _SCALARS},
}


def expression_of(schema: Any, white_space: str) -> str:
    """The regular expression of a schema whose parts are set apart by `white_space`.

    Raises:
        ValueError: The schema cannot be kept to by one; the message says why.
    """
    data = orjson.dumps(schema)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has {len(data):,} bytes as JSON; at most {_MOST_BYTES:,} can be one")
    reason = _unfit(schema, "", _DEEPEST)
    if reason is not None:
        raise ValueError(reason)
    try:
        expression: str = build_regex_from_schema(data.decode(), white_space)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return expression


def _unfit(schema: Any, path: str, levels: int) -> str | None:
    where = path or "the schema"
    if not isinstance(schema, Mapping) or levels == 0:
        return f"{where} must be an object with a `type`, nested {_DEEPEST} deep at most"
    if "enum" in schema or "const" in schema:
        return _unfit_values(schema, where)
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _BY_TYPE:
        return f"{where} must have one `type` of {', '.join(_BY_TYPE)}, or an `enum` or `const`"
    unknown = schema.keys() - _ANYWHERE - _BY_TYPE[kind]
    if unknown:
        return f"{where} has {sorted(unknown)[0]!r}, which a regular expression would not keep to"
    for bound in ("minItems", "maxItems", "minLength", "maxLength"):
        if not 0 <= schema.get(bound, 0) <= _MOST_REPEATED:
            return f"{where} has {bound} {schema[bound]}; at most {_MOST_REPEATED} can be one"
    if kind == "array":
        return _unfit(schema.get("items"), f"{path}.items".lstrip("."), levels - 1)
    return _unfit_object(schema, path, levels) if kind == "object" else None


def _unfit_values(schema: Mapping[str, Any], where: str) -> str | None:
    unknown = schema.keys() - _ANYWHERE - {"enum", "const"}
    if unknown:
        return f"{where} has {sorted(unknown)[0]!r} beside its values"
    values = schema.get("enum", [schema.get("const")])
    if isinstance(values, list) and values and all(not isinstance(each, list | dict) for each in values):
        return None
    return f"{where} must have text, numbers, booleans or null as values"


def _unfit_object(schema: Mapping[str, Any], path: str, levels: int) -> str | None:
    where = path or "the schema"
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return f"{where} must have `properties`"
    if schema.get("additionalProperties") not in (None, False):
        return f"{where} has additionalProperties, which a regular expression would not allow"
    optional = properties.keys() - set(schema.get("required") or [])
    if optional:
        return f"{where} must have all its properties `required`; {sorted(optional)[0]!r} is not"
    for name, part in properties.items():
        reason = _unfit(part, f"{path}.{name}".lstrip("."), levels - 1)
        if reason is not None:
            return reason
    return None
