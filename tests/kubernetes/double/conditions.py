"""Conditions and container states in an object's status."""

from __future__ import annotations

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.resources import JsonObject

__all__ = ["condition", "has_condition", "set_condition"]


def condition(obj: JsonObject, name: str) -> JsonObject | None:
    """Return an object's condition of a type."""
    return next((one for one in obj["status"].get("conditions") or [] if one["type"] == name), None)


def has_condition(obj: JsonObject, *names: str) -> bool:
    """Return whether one of these conditions is True."""
    found = (condition(obj, name) for name in names)
    return any(one is not None and one["status"] == "True" for one in found)


def set_condition(obj: JsonObject, name: str, status: str, reason: str = "", message: str = "") -> None:
    """Set a condition of an object that is being edited; its time changes with its status only."""
    before = condition(obj, name)
    moment = now()
    unchanged = before is not None and before["status"] == status
    new: JsonObject = {
        "type": name,
        "status": status,
        "lastProbeTime": moment if obj["kind"] == "Job" else None,
        "lastTransitionTime": before["lastTransitionTime"] if before and unchanged else moment,
    }
    if unchanged and before and "lastProbeTime" in before:
        new["lastProbeTime"] = before["lastProbeTime"]
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    conditions = obj["status"].setdefault("conditions", [])
    if before is None:
        conditions.append(new)
    else:
        conditions[conditions.index(before)] = new
