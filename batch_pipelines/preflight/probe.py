"""Following a compiled grammar for some tokens, as the engine does with each text it generates.

A grammar can compile in no time and then take seconds, or for ever, to find which tokens may come next, or
allow none at all. The engine finds them between its steps, for all texts in turn, and generates nothing
meanwhile. `([a-z]{1,30} ?){1,50}` costs xgrammar 0.2.8 up to 2 s a token, and `((a{1,100}){1,100}){1,100}`
doubles with each.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["Follower", "Probe", "follow", "follow_paths"]

_MOST_TOKENS: Final = 48
_WORD: Final = 32
_SEED: Final = 20240613
_PATHS: Final = 4
_SLOW_SEC: Final = 0.5


class Follower(Protocol):
    """A compiled grammar somewhere within a text."""

    def allowed(self) -> list[int]:
        """The tokens that may come next, as a bit mask: 32 tokens a word, the lowest id in the lowest bit."""
        ...

    def accept(self, token: int) -> bool:
        """Go on by one token; false if the grammar takes it back that it is allowed."""
        ...

    def finished(self) -> bool:
        """Whether nothing can follow."""
        ...


@dataclass(frozen=True, slots=True)
class Probe:
    """What following a grammar showed.

    Attributes:
        token_sec: Processor time that the slowest token took, in seconds.
        possible: Whether any token may come first.
    """

    token_sec: float
    possible: bool


def follow(grammar: Follower, stop_ids: tuple[int, ...], *, most_sec: float = 3.0, path: int = 0) -> Probe:
    """Follow a grammar along a path of its own, for 48 tokens at most; always the same path.

    Args:
        grammar: The grammar, at the beginning of a text.
        stop_ids: Tokens that end a text; they are taken only where nothing else may come.
        most_sec: Processor time after which no further token is tried, in seconds.
        path: Which path.
    """
    # Any path does, as long as it is the same each time: an item must not be refused by chance. Nor because
    # the machine is busy, so processor time counts.
    choose = random.Random(_SEED + path)  # noqa: S311 - nothing secret
    slowest = spent = 0.0
    for count in range(_MOST_TOKENS):
        start = time.process_time()
        token = _choose(grammar.allowed(), stop_ids, choose)
        if token is None:
            return Probe(slowest, possible=count > 0)
        goes_on = grammar.accept(token) and not grammar.finished()
        took = time.process_time() - start
        slowest, spent = max(slowest, took), spent + took
        if not goes_on or spent > most_sec:
            break
    return Probe(slowest, possible=True)


def follow_paths(begin: Callable[[], Follower], stop_ids: tuple[int, ...]) -> Probe:
    """Follow a grammar along several paths: a costly part may lie in one of several branches.

    Args:
        begin: Gives the grammar at the beginning of a text.
        stop_ids: Tokens that end a text.
    """
    probe = follow(begin(), stop_ids)
    for path in range(1, _PATHS):
        if not probe.possible or probe.token_sec > _SLOW_SEC:
            break
        other = follow(begin(), stop_ids, path=path)
        probe = Probe(max(probe.token_sec, other.token_sec), probe.possible)
    return probe


def _choose(mask: list[int], stop_ids: tuple[int, ...], choose: random.Random) -> int | None:
    words = list(mask)
    for stop in stop_ids:
        if stop // _WORD < len(words):
            words[stop // _WORD] &= ~(1 << stop % _WORD)
    filled = [at for at, word in enumerate(words) if word] or [at for at, word in enumerate(mask) if word]
    if not filled:
        return None
    at = choose.choice(filled)
    word = words[at] or mask[at]
    return at * _WORD + choose.choice([bit for bit in range(_WORD) if word >> bit & 1])
