"""Kubernetes quantities (`500m`, `10Gi`, `1.5`, `1e3`) as exact fractions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

__all__ = ["add_quantities", "is_extended", "quantities", "quantity"]

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?")
_NATIVE = {"cpu", "memory", "ephemeral-storage", "pods", "storage"}
_SUFFIXES = {
    "": Fraction(1),
    **{unit: Fraction(10) ** exponent for unit, exponent in zip("num", (-9, -6, -3), strict=True)},
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


def quantity(value: object) -> Fraction:
    """Return the number that a quantity stands for.

    Raises:
        ValueError: It is not a quantity.
    """
    match = _FORM.fullmatch(str(value))
    if match is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, exponent, suffix = match.groups()
    return Fraction(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def quantities(values: Mapping[str, object] | None) -> dict[str, Fraction]:
    """Return the numbers of a map of resources."""
    return {name: quantity(value) for name, value in (values or {}).items()}


def add_quantities(total: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    """Add a map of resources to another one."""
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def is_extended(resource: str) -> bool:
    """Return whether a resource is one of a device plugin, such as nvidia.com/gpu."""
    return resource not in _NATIVE and not resource.startswith("hugepages-")
