"""The three kinds of patches that clients send: JSON patch, merge patch, strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

from tests.kubernetes.double.errors import ApiFailure, bad_request
from tests.kubernetes.double.resources import JsonObject

__all__ = ["apply_patch"]

# Lists that a strategic merge joins by a key of their items; all others are replaced.
_MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "env": "name", "volumes": "name",
    "volumeMounts": "mountPath", "conditions": "type", "ownerReferences": "uid", "imagePullSecrets": "name",
    "taints": "key", "schedulingGates": "name", "ports": "containerPort",
}  # fmt: skip


def apply_patch(obj: JsonObject, patch: Any, content_type: str) -> JsonObject:
    """Return an object with a patch on it.

    Raises:
        ApiFailure: 415 for a kind of patch the double does not know, 400 or 422 for one that does not fit.
    """
    kind = content_type.partition(";")[0].strip()
    if kind == "application/json-patch+json":
        return _json_patch(obj, patch)
    if kind not in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
        raise ApiFailure(415, "UnsupportedMediaType", f"the double takes no patch of the type {kind}")
    if not isinstance(patch, dict):
        raise bad_request("a merge patch is an object")
    merged: JsonObject = _merge(obj, patch, strategic=kind.startswith("application/strategic"))
    return merged


def _merge(target: Any, patch: Any, *, strategic: bool, field: str = "") -> Any:
    if isinstance(patch, list) and strategic and field in _MERGE_KEYS and isinstance(target, list):
        return _merge_list(target, patch, _MERGE_KEYS[field])
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if strategic and patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if strategic and name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value, strategic=strategic, field=name)
    return merged


def _merge_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = list(target)
    for item in patch:
        at = next((index for index, old in enumerate(merged) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(copy.deepcopy(item))
        else:
            merged[at] = _merge(merged[at], item, strategic=True)
    return merged


def _json_patch(obj: JsonObject, operations: Any) -> JsonObject:
    result = copy.deepcopy(obj)
    for operation in operations:
        path = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        try:
            _apply(result, operation, path)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {operation['path']}"
            raise ApiFailure(422, "Invalid", message) from error
    return result


def _apply(target: Any, operation: dict[str, Any], path: list[str]) -> None:
    for step in path[:-1]:
        target = target[int(step)] if isinstance(target, list) else target[step]
    last: Any = path[-1]
    if isinstance(target, list):
        last = len(target) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(target, list):
            target.insert(last, operation["value"])
        case "add":
            target[last] = operation["value"]
        case "replace":
            _ = target[last]  # it has to be there
            target[last] = operation["value"]
        case "remove":
            del target[last]
        case "test":
            if target[last] != operation["value"]:
                raise ValueError("test failed")
        case other:
            raise ValueError(other)
