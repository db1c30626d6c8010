"""JSON Schema keywords that a library passes over in silence, so that vLLM does not give it such a schema.

The rules are those of vLLM 0.32 (`has_xgrammar_unsupported_json_features` and
`has_guidance_unsupported_json_features`), written anew as tables, since importing vLLM takes many seconds; a
test compares the verdicts. What a library refuses by itself is not repeated here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["not_for_guidance", "not_for_xgrammar", "passed_over_by_xgrammar", "refers_elsewhere"]

_PASSED_OVER: Final = (
    "not", "if", "oneOf", "dependentRequired", "dependentSchemas", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
"""Of `oneOf`, that no more than one branch may hold."""
_FORMATS: Final = frozenset(
    {
        "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer",
        "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid",
    }
)  # fmt: skip
_OF_ARRAYS: Final = ("uniqueItems", "contains", "minContains", "maxContains")

Schema = Mapping[str, Any]


def not_for_xgrammar(schema: Any) -> str | None:
    """What in a schema xgrammar would not enforce, in a few words; none if it enforces all.

    Raises:
        TypeError: A keyword's value is of a type that vLLM trips over too.
    """
    return next((found for part in _parts(schema) if (found := _unenforced(part)) is not None), None)


def not_for_guidance(schema: Any) -> str | None:
    """What in a schema vLLM takes llguidance not to enforce; none if there is nothing."""
    return next(("`patternProperties`" for part in _parts(schema) if "patternProperties" in part), None)


def refers_elsewhere(schema: Any) -> str | None:
    """A reference to another document, if there is one: xgrammar fetches none, and allows anything there."""
    references = (part.get("$ref") for part in _parts(schema))
    return next((ref for ref in references if isinstance(ref, str) and not ref.startswith("#")), None)


def passed_over_by_xgrammar(schema: Any) -> str | None:
    """A keyword that xgrammar passes over although vLLM gives it such schemas, or none."""
    for part in _parts(schema):
        found = next((name for name in _PASSED_OVER if name in part), None)
        if found is not None:
            return f"`{found}`"
    return None


def _parts(schema: Any) -> Iterator[Schema]:
    """The schema and all objects within it, but for those in a list within a list."""
    pending = [schema] if isinstance(schema, dict) else []
    while pending:
        part = pending.pop()
        yield part
        for value in part.values():
            pending += [
                each for each in (value if isinstance(value, list) else [value]) if type(each) is dict
            ]


def _unenforced(part: Schema) -> str | None:
    given = part.get("type")
    types = {given} if isinstance(given, str) else set()
    if isinstance(given, list):
        types = {each for each in given if isinstance(each, str)}
    if "multipleOf" in part and not types.isdisjoint({"integer", "number"}):
        return "`multipleOf`"
    if "array" in types and (found := next((name for name in _OF_ARRAYS if name in part), None)):
        return f"`{found}` of an array"
    if "string" in types:
        if "format" in part and part["format"] not in _FORMATS:
            return f"the format {part['format']!r}"
        if _bounds_a_pattern(part):
            return "a string's length together with its pattern or format"
    if "object" in types and (found := _unenforced_of_object(part)) is not None:
        return found
    branches = part.get("allOf")
    return "`allOf` of several" if isinstance(branches, list) and len(branches) > 1 else None


def _unenforced_of_object(part: Schema) -> str | None:
    if "propertyNames" in part:
        names = part["propertyNames"]
        if isinstance(names, dict) and _bounds_a_pattern(names):
            return "`propertyNames` with a length and a pattern or format"
        other = next((name for name in ("patternProperties", "properties") if name in part), None)
        if other is None and part.get("unevaluatedProperties", True) is not True:
            other = "unevaluatedProperties"
        if other is not None:
            return f"`propertyNames` together with `{other}`"
    patterns = part.get("patternProperties")
    if isinstance(patterns, dict):
        if "properties" in part:
            return "`patternProperties` together with `properties`"
        if len(patterns) > 1:
            return "several `patternProperties`"
    return None


def _bounds_a_pattern(part: Schema) -> bool:
    return ("pattern" in part or "format" in part) and ("minLength" in part or "maxLength" in part)
