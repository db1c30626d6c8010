"""Prompts against the model's context.

The rule is vLLM 0.32's: a prompt must leave room for one token, `max_tokens` must not exceed the context by
itself, and where both do not fit together, `max_tokens` is lowered in silence. Lists of token ids are counted
exactly. Texts are counted by the helper, and only those of which the bytes say that they may be too long: a
tokenizer does a megabyte a second. Typical text has three to five bytes a token; text with less than two
(digits, or a script that the tokenizer hardly knows) can slip through, and is refused by the engine in its
place.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.refusal import refusal

__all__ = ["BytesPerToken", "Lengths"]

_DENSEST: Final = 2.0
_LEARNED_FROM: Final = 32
_MARGIN: Final = 0.8


class BytesPerToken:
    """How few bytes of an item's JSON there have been to a token, so that fewer items need be counted.

    After 32 counted items, only those are counted that would be too long even if they were a fifth denser
    than the densest of them.
    """

    def __init__(self) -> None:
        self._densest = float("inf")
        self._counted = 0

    def learn(self, size: int, tokens: int) -> None:
        """Take in a counted item: the bytes of its JSON, and its tokens."""
        self._counted += 1
        self._densest = min(self._densest, size / max(tokens, 1))

    @property
    def least(self) -> float:
        """Bytes that a token has at least, as far as is known."""
        return _DENSEST if self._counted < _LEARNED_FROM else max(_DENSEST, _MARGIN * self._densest)


class Lengths:
    """Compares prompts, and what is to be generated, with one model's context.

    Attributes:
        suspicious_from: Bytes of an item's JSON from which its text must be counted.
    """

    def __init__(self, context: int, notes: Counter[str]) -> None:
        """Take the context.

        Args:
            context: Longest prompt and answer together, in tokens.
            notes: Where notes are counted.
        """
        self._context = context
        self._notes = notes
        self._density = BytesPerToken()
        self.suspicious_from = context * self._density.least

    @property
    def enough(self) -> int:
        """A prompt that certainly has more tokens than this need not be counted exactly."""
        return self._context

    def check_limit(self, kind: ItemKind, item: Mapping[str, Any]) -> ItemError | None:
        """Check how much is to be generated."""
        field, limit = _limit(kind, item)
        if limit is not None and limit > self._context:
            return refusal(
                field,
                f"is {limit:,}; prompt and answer together may have {self._context:,} tokens; lower it, or "
                "raise model_config.max_model_len",
            )
        return None

    def check_ids(self, kind: ItemKind, item: Mapping[str, Any], prompt: Sequence[Any]) -> ItemError | None:
        """Check a prompt that is token ids or lists of them."""
        several = isinstance(prompt[0], list)
        counts = [len(ids) for ids in prompt] if several else [len(prompt)]
        return self._check(
            kind, item, counts, [f"prompt[{at}]" for at in range(len(counts))] if several else ["prompt"]
        )

    def check_counts(
        self,
        kind: ItemKind,
        item: Mapping[str, Any],
        counts: Sequence[int],
        fields: Sequence[str],
        size: int,
    ) -> ItemError | None:
        """Check prompts that the helper has counted.

        Args:
            kind: What the item is.
            item: Its fields.
            counts: Tokens of each of its prompts; of one beyond `enough`, maybe fewer than it has.
            fields: What to call each.
            size: Bytes of the item's JSON.
        """
        self._density.learn(size, sum(counts))
        self.suspicious_from = self._context * self._density.least
        return self._check(kind, item, counts, fields)

    def _check(
        self, kind: ItemKind, item: Mapping[str, Any], counts: Sequence[int], fields: Sequence[str]
    ) -> ItemError | None:
        for count, field in zip(counts, fields, strict=True):
            if count >= self._context:
                least = "at least " if count > self._context else ""
                return refusal(
                    field,
                    f"{'have' if field == 'messages' else 'has'} {least}{count:,} tokens; prompt and answer "
                    f"together may have {self._context:,}, and the answer needs one at least; shorten the "
                    "prompt, or raise model_config.max_model_len",
                )
        name, limit = _limit(kind, item)
        if limit is not None and limit + max(counts) > self._context:
            self._notes[f"{name}: more than the context has left; the answer may end before"] += 1
        return None


def _limit(kind: ItemKind, item: Mapping[str, Any]) -> tuple[str, int | None]:
    if kind == "v1":
        return "max_new_tokens", item.get("max_new_tokens")
    if kind == "chat" and item.get("max_completion_tokens") is not None:
        return "max_completion_tokens", item["max_completion_tokens"]
    return "max_tokens", item.get("max_tokens")
