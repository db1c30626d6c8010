"""Following a grammar for some tokens."""

import time
from collections.abc import Callable

from batch_pipelines.preflight.probe import follow


class Grammar:
    """Allows what it is told at each place, and keeps what it was given."""

    def __init__(self, masks: Callable[[int], list[int]], ends_after: int = 10**9) -> None:
        self.taken: list[int] = []
        self._masks = masks
        self._ends_after = ends_after

    def allowed(self) -> list[int]:
        return self._masks(len(self.taken))

    def accept(self, token: int) -> bool:
        self.taken.append(token)
        return True

    def finished(self) -> bool:
        return len(self.taken) >= self._ends_after


def test_it_goes_48_tokens_far_and_always_the_same_way() -> None:
    first, second = Grammar(lambda _: [0b1011, 0, 1 << 31]), Grammar(lambda _: [0b1011, 0, 1 << 31])
    assert follow(first, stop_ids=(3,)).possible
    follow(second, stop_ids=(3,))
    assert len(first.taken) == 48
    assert set(first.taken) == {0, 1, 95}
    assert first.taken == second.taken


def test_it_ends_a_text_only_where_nothing_else_may_come() -> None:
    grammar = Grammar(lambda place: [0b101] if place < 3 else [0b100], ends_after=4)
    assert follow(grammar, stop_ids=(2,)).possible
    assert grammar.taken == [0, 0, 0, 2]


def test_a_grammar_that_allows_nothing_at_first_is_not_possible() -> None:
    assert not follow(Grammar(lambda _: [0, 0]), stop_ids=(2,)).possible
    assert follow(Grammar(lambda place: [1] if place == 0 else [0]), stop_ids=(2,)).possible


def test_the_slowest_token_counts_in_processor_time() -> None:
    def busy(place: int) -> list[int]:
        if place == 5:
            until = time.process_time() + 0.05
            while time.process_time() < until:
                pass
        return [1]

    assert 0.05 <= follow(Grammar(busy), stop_ids=()).token_sec < 1.0
    assert follow(Grammar(lambda _: [1]), stop_ids=()).token_sec < 0.05


def test_it_stops_early_where_it_is_slow() -> None:
    def slow(_: int) -> list[int]:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        return [1]

    grammar = Grammar(slow)
    follow(grammar, stop_ids=(), most_sec=0.2)
    assert 3 <= len(grammar.taken) < 6
