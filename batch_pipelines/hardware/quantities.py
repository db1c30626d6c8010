"""Kubernetes quantities, read once at the door: CPUs as thousandths, memory and storage as bytes.

A quantity is a number or text such as `500m`, `10Gi`, `1e3`; a fraction of the smallest unit counts as one,
as Kubernetes rounds. What a node offers is in `batch_pipelines.hardware.gpus`.
"""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

__all__ = ["GIB", "QuantityInvalid", "format_bytes", "format_cpus", "parse_bytes", "parse_cpus"]

GIB: Final = 2**30

_QUANTITY = re.compile(
    r"(\d{1,19}(?:\.\d{0,9})?|\.\d{1,9})(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = 2**63 - 1  # Kubernetes' own limit
_LEAST_BYTES = 2**20


class QuantityInvalid(ValueError):
    """A quantity that cannot be read or makes no sense; the text names its field."""


def parse_cpus(value: str | int | float, field: str = "cpus") -> int:
    """Read a number of CPUs.

    Args:
        value: Such as 4, 1.5 or `500m`.
        field: Its name, for errors.

    Returns:
        Thousandths of a CPU, at least 1.

    Raises:
        QuantityInvalid: It is no quantity, or not above 0.
    """
    return _whole(_parse(value, field, "'8' or '500m'") * 1000, field, value)


def parse_bytes(value: str | int | float, field: str) -> int:
    """Read an amount of memory or storage.

    Args:
        value: Such as `10Gi`, `1e12` or a number of bytes.
        field: Its name, for errors.

    Returns:
        Bytes, at least 1 MiB.

    Raises:
        QuantityInvalid: It is no quantity, or below 1 MiB, which can only be a unit left out.
    """
    number = _whole(_parse(value, field, "'32Gi'"), field, value)
    if number < _LEAST_BYTES:
        raise QuantityInvalid(f"{field} is {value}, which means {number} bytes; write a unit, such as '32Gi'")
    return number


def format_cpus(milli: int) -> str:
    """CPUs as Kubernetes writes them, such as `8` or `500m`.

    Args:
        milli: Thousandths of a CPU.
    """
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def format_bytes(number: int) -> str:
    """Bytes as Kubernetes writes them, in the largest binary unit that keeps them exact, such as `32Gi`.

    Args:
        number: Bytes.
    """
    for unit, power in reversed(_BINARY.items()):
        if number and number % 2**power == 0:
            return f"{number >> power}{unit}"
    return str(number)


def _parse(value: str | int | float, field: str, example: str) -> Decimal:
    text = str(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise QuantityInvalid(
            f"{field} is {shown!r}: expected a positive number or a quantity such as {example}"
        )
    digits, exponent, unit = match.groups()
    number = Decimal(digits).scaleb(int(exponent) if exponent else _DECIMAL.get(unit, 0))
    return number * (1 << _BINARY.get(unit, 0))


def _whole(number: Decimal, field: str, value: str | int | float) -> int:
    whole = int(number.to_integral_value(ROUND_CEILING))
    if not 0 < whole <= _LARGEST:
        raise QuantityInvalid(f"{field} is {value}: must be above 0 and below 2^63")
    return whole
