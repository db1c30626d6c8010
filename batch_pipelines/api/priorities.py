"""What a request's `priority` may be, and what it means: to Dagster's queue, and to Kubernetes.

It is text: one of a few names that are always known, a name for which the deployment has a PriorityClass, or
a whole number. Upper and lower case are the same.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from batch_pipelines.api.names import suggestion

__all__ = ["DEFAULT_PRIORITY", "PRIORITIES", "dagster_priority", "priority_class", "priority_problem"]

PRIORITIES: Final[Mapping[str, int]] = {"low": -10, "default": 0, "normal": 0, "medium": 0, "high": 10}
"""Dagster's priority by name; higher goes first."""
DEFAULT_PRIORITY: Final = "default"

_MOST_DIGITS: Final = 9


def dagster_priority(priority: str | None) -> int:
    """Its place in Dagster's queue, where higher goes first; 0 for names of the deployment's own.

    Args:
        priority: As the request has it.
    """
    name = _folded(priority)
    return int(name) if _is_number(name) else PRIORITIES.get(name, 0)


def priority_class(priority: str | None, classes: Mapping[str, str]) -> str | None:
    """The PriorityClass of the job's pods, or None for the cluster's own default.

    Args:
        priority: As the request has it.
        classes: PriorityClass by priority. One that is not there is treated as `default` is.
    """
    known = {_folded(name): value for name, value in classes.items()}
    return known.get(_folded(priority), known.get(DEFAULT_PRIORITY))


def priority_problem(priority: str | None, names: Iterable[str]) -> str | None:
    """Why a priority means nothing, or None if it means something.

    Args:
        priority: As the request has it.
        names: Names of the deployment's own.
    """
    name = _folded(priority)
    known = sorted({*PRIORITIES, *(_folded(own) for own in names)})
    if name in known or _is_number(name):
        return None
    return (
        f"{priority!r} is unknown: expected {', '.join(known)}, or a whole number of at most {_MOST_DIGITS} "
        f"characters{suggestion(name, known)}"
    )


def _folded(priority: str | None) -> str:
    return DEFAULT_PRIORITY if priority is None else priority.strip().lower()


def _is_number(name: str) -> bool:
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(name) <= _MOST_DIGITS
