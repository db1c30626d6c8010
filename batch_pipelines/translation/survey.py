"""A look over all items of a job: what they need of the engine, what has no effect, what cannot be done.

It runs while items are sharded, before any engine starts, and must cost next to nothing for plain items.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.translation.draft import Draft, Item
from batch_pipelines.translation.forms import BACKENDS
from batch_pipelines.translation.table import CHAT_FIELDS, COMPLETION_FIELDS
from batch_pipelines.translation.translate import draft_of

__all__ = ["Survey"]

_PLAIN: Final = frozenset(
    {
        "prompt",
        "messages",
        "temperature",
        "min_p",
        "include_stop_str_in_output",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "add_special_tokens",
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "echo",
    }
)
"""Fields that are sent as they are: no rule refuses them, and they ask nothing of the engine's set-up."""
_FIELDS: Final = frozenset({*COMPLETION_FIELDS, *CHAT_FIELDS}) - _PLAIN
_NOTED: Final = ("model", "prediction", "stream")
_BEAM_LOG_PROBS: Final = 2
"""vLLM's beam search asks for this many log probabilities for each beam."""


class Survey:
    """Collects over the items of a job.

    Attributes:
        silent: For each field without effect that nothing else shows, how many items set it.
    """

    def __init__(self, models: Collection[str | None] = ()) -> None:
        """See the class.

        Args:
            models: Names of the job's own model; an item that names it asks for nothing else.
        """
        self._models = models
        self.silent: Counter[str] = Counter()
        self._priorities = self._chat_templates = self._tools = False
        self._log_probs = 0
        self._backend: str | None = None

    @property
    def needs(self) -> EngineNeeds:
        """What the items so far ask of the engine."""
        return EngineNeeds(
            priorities=self._priorities,
            chat_templates=self._chat_templates,
            tools=self._tools,
            log_probs=self._log_probs,
            structured_backend=self._backend,
        )

    @property
    def warnings(self) -> list[str]:
        """What the items so far set without effect, a sentence for each field."""
        said = {
            "model": "`model` has no effect in an item, the job's model answers all ({})",
            "prediction": "`prediction` has no effect ({})",
            "stream": "`stream` has no effect, a batch answers whole ({})",
        }
        counts = {name: f"{count:,} item{'s' * (count != 1)}" for name, count in self.silent.items()}
        return [text.format(counts[name]) for name, text in said.items() if counts.get(name)]

    def take(self, kind: ItemKind, item: Any) -> ItemError | None:
        """Look at one valid item, its parsed JSON. A V1 prompt has no fields of its own.

        Returns:
            Why the engine cannot be asked, if it cannot.
        """
        if kind == "v1" or _FIELDS.isdisjoint(item):
            return None
        draft = draft_of(kind, item)
        if isinstance(draft, ItemError):
            return draft
        error = self._take_backend(item)
        if error is None:
            self._take_needs(draft)
            self._take_silent(item)
        return error

    def _take_backend(self, item: Item) -> ItemError | None:
        name = "guided_decoding_backend"
        backend = item.get(name)
        if backend is None or backend == BACKENDS[0]:
            return None
        if self._backend is None:
            self._backend = backend
        if self._backend == backend:
            return None
        message = f"{name}: is {backend!r}, but items before have {self._backend!r}; a job has one"
        return ItemError(message=message, type="BadRequestError", param=name, code=400)

    def _take_needs(self, draft: Draft) -> None:
        body = draft.body
        self._priorities |= "priority" in body
        self._chat_templates |= "chat_template" in body
        self._tools |= "tools" in body and body.get("tool_choice") != "none"
        wanted = int(body.get("top_logprobs") or body.get("logprobs") or 0)
        if body.get("use_beam_search"):
            wanted = max(wanted, _BEAM_LOG_PROBS * body.get("n", 1))
        self._log_probs = max(self._log_probs, wanted)

    def _take_silent(self, item: Item) -> None:
        for name in _NOTED:
            if item.get(name) and not (name == "model" and item[name] in self._models):
                self.silent[name] += 1
