"""The two libraries' compiled grammars, as `probe` follows them; within the helper."""

from typing import Any

from batch_pipelines.preflight.tokens import Vocabulary

__all__ = ["GuidanceFollower", "XgrammarFollower"]


class XgrammarFollower:
    """A grammar compiled by xgrammar."""

    def __init__(self, xgrammar: Any, compiled: Any, vocabulary: Vocabulary) -> None:
        """Begin a text.

        Args:
            xgrammar: The library.
            compiled: Its `CompiledGrammar`.
            vocabulary: What it was compiled for.
        """
        self._matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=list(vocabulary.stop_ids))
        self._mask = xgrammar.allocate_token_bitmask(1, len(vocabulary.texts))

    def allowed(self) -> list[int]:
        """See `Follower.allowed`."""
        self._matcher.fill_next_token_bitmask(self._mask, 0)
        return [word & 0xFFFFFFFF for word in self._mask[0].tolist()]

    def accept(self, token: int) -> bool:
        """See `Follower.accept`."""
        return bool(self._matcher.accept_token(token))

    def finished(self) -> bool:
        """See `Follower.finished`."""
        return bool(self._matcher.is_terminated())


class GuidanceFollower:
    """A grammar within a matcher of llguidance, which keeps errors to itself until it is asked."""

    def __init__(self, matcher: Any) -> None:
        """Take an `LLMatcher` at the beginning of a text."""
        self._matcher = matcher

    @property
    def error(self) -> str:
        """What went wrong, empty if nothing did."""
        return str(self._matcher.get_error())

    def allowed(self) -> list[int]:
        """See `Follower.allowed`."""
        if self._matcher.is_error():
            return []
        mask: bytes = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            return []
        return [int.from_bytes(mask[at : at + 4], "little") for at in range(0, len(mask), 4)]

    def accept(self, token: int) -> bool:
        """See `Follower.accept`."""
        return bool(self._matcher.consume_token(token))

    def finished(self) -> bool:
        """See `Follower.finished`."""
        return bool(self._matcher.is_stopped())
