"""Which known name somebody may have meant."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest", "suggestion"]


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """The known name that looks most like `name`, or none if none does.

    Args:
        name: What was written.
        known: What may have been meant.
        cutoff: How alike they must be, from 0 to 1, where 1 is the same.
    """
    folded = {candidate.replace("_", "").casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(
        name.replace("_", "").replace("-", "").casefold(), folded, n=1, cutoff=cutoff
    )
    return folded[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that proposes the nearest known name; empty if there is none."""
    match = nearest(name, known)
    return f" (did you mean `{match}`?)" if match else ""
