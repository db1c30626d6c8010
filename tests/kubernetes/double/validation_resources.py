"""Rules for a container's resources and for sizes of volumes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.kubernetes.double.quantities import is_extended, quantity
from tests.kubernetes.double.validation_meta import label_problems

__all__ = ["resource_problems", "volume_size_problems"]

_STANDARD = ("cpu", "memory", "ephemeral-storage")


def resource_problems(resources: Mapping[str, Any], where: str) -> list[str]:
    """Return what is wrong with requests and limits."""
    problems: list[str] = []
    limits = _amounts(resources.get("limits") or {}, f"{where}.limits", problems)
    requests = _amounts(resources.get("requests") or {}, f"{where}.requests", problems)
    for name, amount in requests.items():
        limit = limits.get(name)
        here, told = f"{where}.requests", resources["requests"][name]
        if is_extended(name) and limit != amount:
            why = f"must be equal to {name} limit" + (
                "" if limit is None else f" of {resources['limits'][name]}"
            )
            problems.append(
                f'{here}: Invalid value: "{told}": {why}'
                if limit is not None
                else f"{where}.limits: Required value: Limit must be set for non overcommitable resources"
            )
        elif limit is not None and amount > limit:
            why = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            problems.append(f'{here}: Invalid value: "{told}": {why}')
    return problems


def _amounts(values: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Fraction]:
    amounts = {}
    for name, value in values.items():
        here = f"{where}[{name}]"
        if name not in _STANDARD:
            if "/" not in name and not name.startswith("hugepages-"):
                problems.append(
                    f'{here}: Invalid value: "{name}": must be a standard resource for containers'
                )
            problems += label_problems({name: ""}, here)
        try:
            amount = quantity(value)
        except ValueError as error:
            problems.append(f'{here}: Invalid value: "{value}": {error}')
            continue
        if amount < 0:
            problems.append(f'{here}: Invalid value: "{value}": must be greater than or equal to 0')
        if is_extended(name) and amount.denominator != 1:
            problems.append(f'{here}: Invalid value: "{value}": must be an integer')
        amounts[name] = amount
    return amounts


def volume_size_problems(volume: Mapping[str, Any], where: str) -> list[str]:
    """Return what is wrong with an emptyDir's size and medium."""
    empty = volume.get("emptyDir") or {}
    problems = []
    if empty.get("medium") not in (None, "", "Memory") and not str(empty["medium"]).startswith("HugePages"):
        problems.append(f'{where}.emptyDir.medium: Unsupported value: "{empty["medium"]}"')
    if empty.get("sizeLimit") is not None:
        try:
            if quantity(empty["sizeLimit"]) < 0:
                problems.append(
                    f'{where}.emptyDir.sizeLimit: Forbidden: must be 0 or more: "{empty["sizeLimit"]}"'
                )
        except ValueError as error:
            problems.append(f'{where}.emptyDir.sizeLimit: Invalid value: "{empty["sizeLimit"]}": {error}')
    return problems
