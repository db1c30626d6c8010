"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["from_now", "now", "now_precise"]


def now() -> str:
    """This moment, in whole seconds."""
    return from_now(0)


def from_now(seconds: float) -> str:
    """A moment `seconds` from now, in whole seconds."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_precise() -> str:
    """This moment, with nanoseconds' digits as container logs have them."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
