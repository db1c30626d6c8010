"""The model's tokenizer, within the helper: counting tokens, and the vocabulary grammars are compiled for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["BYTES", "Tokens", "Vocabulary"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens as a tokenizer writes them, by id.

    Attributes:
        texts: One for each id below the size; empty where there is no token.
        stop_ids: Those that end a text; at least one.
        spelling: How bytes are written in `texts`: `byte_level`, `byte_fallback` or `raw`.
    """

    texts: Sequence[str | bytes]
    stop_ids: tuple[int, ...]
    spelling: str


BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b"</s>"), (256,), "raw")
"""Every single byte: what grammars are compiled for where the model's own tokens are not known."""


class Tokens:
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, file: Path) -> None:
        """Load it.

        Args:
            file: A `tokenizer.json`.

        Raises:
            ImportError: The library is not installed.
            Exception: What the library raises for a file it does not understand; it has no type of its own.
        """
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_file(str(file))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, text: str, *, special: bool) -> int:
        """Tokens of a text.

        Args:
            text: The text.
            special: Whether the tokenizer adds what it begins and ends texts with.
        """
        return len(self._tokenizer.encode(text, add_special_tokens=special).ids)

    @cached_property
    def longest(self) -> int:
        """Characters of the longest token: no text has fewer tokens than its length over this."""
        return max(map(len, self._ids), default=1)

    @cached_property
    def size(self) -> int:
        """One more than the highest id."""
        return max(self._ids.values(), default=0) + 1

    def as_json(self) -> str:
        """The tokenizer as the text of a `tokenizer.json`."""
        return str(self._tokenizer.to_str())

    def id_of(self, token: str | None) -> int | None:
        """The id of a token, none if there is no such token."""
        found: int | None = self._tokenizer.token_to_id(token) if token else None
        return found

    def vocabulary(self, size: int | None, stop_ids: Sequence[int]) -> Vocabulary:
        """Its tokens.

        Args:
            size: Rows of the model's output, which may be more or fewer than the tokens; None for as many.
            stop_ids: Tokens that end a text; without any, the last token.
        """
        size = size or self.size
        texts = [""] * size
        for text, token in self._ids.items():
            if token < size:
                texts[token] = text
        stops = tuple(token for token in stop_ids if 0 <= token < size) or (size - 1,)
        return Vocabulary(texts, stops, _spelling(self._ids))

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return ids


def _spelling(ids: dict[str, int]) -> str:
    if "<0x00>" in ids:
        return "byte_fallback"
    return "byte_level" if "\u0120" in ids else "raw"  # a space, in the alphabet of byte-level tokenizers
