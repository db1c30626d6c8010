"""Prompts of completions: whether there is anything in them, and whether it fits the model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.helper import Helper, HelperExhausted, HelperLost, HelperUnusable
from batch_pipelines.preflight.lengths import Lengths
from batch_pipelines.preflight.model_folder import ModelFolder
from batch_pipelines.preflight.refusal import refusal
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.preflight.token_ids import check_prompt_ids

__all__ = ["NO_TOKENIZER", "Prompts"]

NO_TOKENIZER: Final = "needs a tokenizer, and model_config.skip_tokenizer_init starts the engine without one"
_MOST_PROMPTS: Final = 1024
"""vLLM's `VLLM_MAX_COMPLETION_PROMPTS`."""

Item = Mapping[str, Any]
Loads = Mapping[str, Mapping[str, Any]]


class Prompts:
    """Checks the prompts of one job's completions.

    Attributes:
        lengths: The model's context; None if lengths are not checked.
        loads: What the helper must load to count tokens; empty if it cannot.
    """

    def __init__(
        self, folder: ModelFolder, settings: PreflightSettings, helper: Helper, notes: Counter[str]
    ) -> None:
        """Take what to check with.

        Args:
            folder: The model's tokenizer.
            settings: Its context and vocabulary, and the limits.
            helper: What counts tokens.
            notes: Where notes are counted.
        """
        self._settings = settings
        self._helper = helper
        self.lengths = Lengths(settings.context, notes) if settings.context is not None else None
        self.loads: Loads = {}
        if folder.tokenizer_json is not None:
            eos = folder.special_tokens.get("eos_token")
            self.loads = {"load_tokenizer": {"file": str(folder.tokenizer_json), "eos": eos}}
        self._tokens_of_nothing: int | None = None

    def check(self, kind: ItemKind, item: Item, prompt: Any, size: int) -> ItemError | None:
        """Check the prompt, or the prompts, of a completion or of V1 content.

        Args:
            kind: What it is.
            item: The fields that go with it.
            prompt: A text, texts, token ids or lists of them.
            size: Bytes of the item's JSON.
        """
        if not prompt:
            return refusal("prompt", "is empty")
        if isinstance(prompt, str):
            return self._check_texts(kind, item, [prompt], ["prompt"], size)
        first = prompt[0]
        if isinstance(first, int):
            return self._check_ids(kind, item, prompt)
        if len(prompt) > _MOST_PROMPTS:
            return refusal(
                "prompt", f"has {len(prompt):,} prompts; the engine takes {_MOST_PROMPTS:,} at once"
            )
        if isinstance(first, list):
            return self._check_ids(kind, item, prompt)
        for at, text in enumerate(prompt):
            if not text and self._stays_empty(item):
                return refusal(
                    f"prompt[{at}]", "is empty, and the model's tokenizer begins no text with a token"
                )
        return self._check_texts(kind, item, prompt, [f"prompt[{at}]" for at in range(len(prompt))], size)

    def is_suspicious(self, size: int) -> bool:
        """Whether a text's tokens should be counted: an item of so many bytes may be too long."""
        return self.lengths is not None and bool(self.loads) and size > self.lengths.suspicious_from

    def _check_ids(self, kind: ItemKind, item: Item, prompt: Sequence[Any]) -> ItemError | None:
        error = None
        if self._settings.vocab_size is not None:
            error = check_prompt_ids(prompt, self._settings.vocab_size)
        if error is None and self.lengths is not None:
            error = self.lengths.check_ids(kind, item, prompt)
        return error

    def _check_texts(
        self, kind: ItemKind, item: Item, texts: Sequence[str], fields: Sequence[str], size: int
    ) -> ItemError | None:
        if self._settings.skip_tokenizer:
            return refusal("prompt", f"{NO_TOKENIZER}; send token ids")
        if self.lengths is None or not self.is_suspicious(size):
            return None
        size = sum(len(text.encode()) for text in texts)
        if not self.is_suspicious(size):
            return None
        try:
            counts = self._count(texts, special=item.get("add_special_tokens") is not False)
        except HelperExhausted:
            return None  # the engine counts it too
        except HelperLost as loss:
            return refusal("prompt", f"cannot be made tokens: it {loss}")
        return self.lengths.check_counts(kind, item, counts, fields, size) if counts else None

    def _stays_empty(self, item: Item) -> bool:
        if item.get("add_special_tokens") is False:
            return True
        if self._tokens_of_nothing is None:
            try:
                counted = self._count([""], special=True) if self.loads else []
            except HelperLost:
                counted = []  # the engine will tell
            self._tokens_of_nothing = counted[0] if counted else 1
        return self._tokens_of_nothing == 0

    def _count(self, texts: Sequence[str], *, special: bool) -> list[int]:
        """Tokens of each text, or nothing if the tokenizer cannot be loaded."""
        enough = self.lengths.enough if self.lengths is not None else 0
        request = {"texts": texts, "special": special, "enough": enough}
        try:
            answer = self._helper.ask("count", request, seconds=self._settings.compile_sec, loads=self.loads)
        except HelperUnusable:
            return []
        return [] if None in answer["tokens"] else list(answer["tokens"])
