"""Label and field selectors, in the form that lists and watches take, and selector terms of node affinity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.kubernetes.double.errors import bad_request

__all__ = ["field_selector", "label_selector", "match_expression"]

Matcher = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUALS = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)")
_EXISTS = re.compile(r"(!?)\s*([A-Za-z0-9][-A-Za-z0-9_./]*)")
_SELECTABLE = {
    "pods": {
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    },
    "events": {
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    },
    "jobs": {"status.successful"},
    "nodes": {"spec.unschedulable"},
    "secrets": {"type"},
    "namespaces": {"status.phase"},
}  # fmt: skip


def match_expression(labels: Mapping[str, str], key: str, operator: str, values: Iterable[str]) -> bool:
    """Return whether labels meet one expression of a selector.

    Raises:
        ValueError: An operator that the double does not know.
    """
    allowed = set(values)
    match operator:
        case "In":
            return labels.get(key) in allowed
        case "NotIn":
            return labels.get(key) not in allowed
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt":
            (bound,) = allowed
            here = labels.get(key, "")
            return here.isdigit() and (int(here) > int(bound) if operator == "Gt" else int(here) < int(bound))
    raise ValueError(f"operator {operator}")


def label_selector(text: str | None) -> Matcher:
    """Return a test of an object's labels; the text is as kubectl's --selector."""
    terms: list[tuple[str, str, list[str]]] = []
    for part in re.split(r",(?![^(]*\))", text or ""):
        part = part.strip()
        if not part:
            continue
        if found := _SET.fullmatch(part):
            values = [value.strip() for value in found[3].split(",")]
            terms.append((found[1], "In" if found[2] == "in" else "NotIn", values))
        elif found := _EQUALS.fullmatch(part):
            terms.append((found[1], "NotIn" if found[2] == "!=" else "In", [found[3]]))
        elif found := _EXISTS.fullmatch(part):
            terms.append((found[2], "DoesNotExist" if found[1] else "Exists", []))
        else:
            raise bad_request(f"unable to parse requirement: found {part!r}")

    def matches(obj: Mapping[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(match_expression(labels, *term) for term in terms)

    return matches


def field_selector(plural: str, text: str | None) -> Matcher:
    """Return a test of an object's fields; a field that a real server does not index is refused (400)."""
    terms: list[tuple[list[str], bool, str]] = []
    for part in filter(None, (text or "").split(",")):
        found = _EQUALS.fullmatch(part.strip())
        if found is None:
            raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
        if found[1] not in {"metadata.name", "metadata.namespace"} | _SELECTABLE.get(plural, set()):
            raise bad_request(f'field label not supported: "{found[1]}"')
        terms.append((found[1].split("."), found[2] != "!=", found[3]))

    def matches(obj: Mapping[str, Any]) -> bool:
        return all((_field(obj, path) == wanted) == equal for path, equal, wanted in terms)

    return matches


def _field(obj: Mapping[str, Any], path: list[str]) -> str:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
