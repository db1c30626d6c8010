"""Which known name somebody may have meant."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest", "suggestion"]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, or none if none does."""
    folded = {candidate.replace("_", "").casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(
        name.replace("_", "").replace("-", "").casefold(), folded, n=1, cutoff=0.7
    )
    return folded[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that proposes the nearest known name; empty if there is none."""
    match = nearest(name, known)
    return f" (did you mean `{match}`?)" if match else ""
