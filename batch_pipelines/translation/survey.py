"""A look over all items of a job: what they need of the engine, what has no effect, what cannot be done.

It runs while items are sharded, before any engine starts, and must cost next to nothing for plain items.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.names import nearest
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
        "echo",
    }
)
"""Fields that are sent as they are: no rule refuses them, and they ask nothing of the engine's set-up."""
_FIELDS: Final = frozenset({*COMPLETION_FIELDS, *CHAT_FIELDS}) - _PLAIN
_OF_KIND: Final = {"completion": frozenset(COMPLETION_FIELDS), "chat": frozenset(CHAT_FIELDS)}
_ANY_KIND: Final = frozenset({*COMPLETION_FIELDS, *CHAT_FIELDS})
_ENGINES_OWN: Final = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "include_reasoning",
        "prompt_logprobs",
        "return_token_ids",
        "structured_outputs",
        "truncate_prompt_tokens",
        "vllm_xargs",
    }
)
"""Fields that vLLM has and the contract has not."""
_MOST_STRANGE: Final = 200
_LONGEST_NAME: Final = 40
_ALIKE: Final = 0.88
"""A sender's own `source` is not meant to be `store` (0.73 alike), `temprature` is `temperature` (0.95)."""
_BACKEND: Final = "guided_decoding_backend"
_NOTED: Final = ("model", "prediction", "stream")
_BEAM_LOG_PROBS: Final = 2
"""vLLM's beam search asks for this many log probabilities for each beam."""


def _strangeness(kind: ItemKind, name: str) -> str:
    """What is odd about a key that is no field of its item; empty if nothing is."""
    if name in _ANY_KIND:
        return f"`{name}` has no effect in a {kind}"
    if name in _ENGINES_OWN:
        return f"`{name}` is no field of the contract and has no effect"
    near = (
        nearest(name, _OF_KIND[kind], cutoff=_ALIKE)
        if len(name) <= _LONGEST_NAME and name.isidentifier()
        else None
    )
    return f"`{name}` is no field and has no effect; did you mean `{near}`?" if near else ""


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
        self._strange: dict[str, str] = {}
        self._priorities = self._chat_templates = self._tools = self._seeds = False
        self._log_probs = 0
        self._backend: str | None = None

    @property
    def needs(self) -> EngineNeeds:
        """What the items so far ask of the engine."""
        return EngineNeeds(
            priorities=self._priorities,
            chat_templates=self._chat_templates,
            tools=self._tools,
            seeds=self._seeds,
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
        said |= {name: text + " ({})" for name, text in self._strange.items() if text}
        counts = {name: f"{count:,} item{'s' * (count != 1)}" for name, count in self.silent.items()}
        return [text.format(counts[name]) for name, text in said.items() if counts.get(name)]

    def draft(self, kind: ItemKind, item: Any) -> Draft | ItemError | None:
        """The engine's request for one valid item, or why it cannot be asked; none for a plain item.

        A V1 prompt has no fields of its own. What is needed is counted by `count`, once nothing else is
        found against the item.
        """
        if kind == "v1":
            return None
        for name in item.keys() - _OF_KIND[kind]:
            self._take_strange(kind, name)
        if _FIELDS.isdisjoint(item):
            return None
        draft = draft_of(kind, item)
        if isinstance(draft, ItemError):
            return draft
        return self._other_backend(item) or draft

    def _take_strange(self, kind: ItemKind, name: str) -> None:
        """Note a key that looks as if it were meant to be a field; other keys are their sender's own."""
        if name not in self._strange and len(self._strange) < _MOST_STRANGE:
            self._strange[name] = _strangeness(kind, name)
        if self._strange.get(name):
            self.silent[name] += 1

    def count(self, draft: Draft) -> None:
        """Take in what an item that is answered asks for."""
        backend = draft.item.get(_BACKEND)
        if backend is not None and backend != BACKENDS[0]:
            self._backend = backend
        self._take_needs(draft)
        self._take_silent(draft.item)

    def _other_backend(self, item: Item) -> ItemError | None:
        backend = item.get(_BACKEND)
        if backend in (None, BACKENDS[0], self._backend) or self._backend is None:
            return None
        message = f"{_BACKEND}: is {backend!r}, but items before have {self._backend!r}; a job has one"
        return ItemError(message=message, type="BadRequestError", param=_BACKEND, code=400)

    def _take_needs(self, draft: Draft) -> None:
        body = draft.body
        self._priorities |= "priority" in body
        self._chat_templates |= "chat_template" in body
        self._tools |= "tools" in body and body.get("tool_choice") != "none"
        self._seeds |= "seed" in body
        wanted = int(body.get("top_logprobs") or body.get("logprobs") or 0)
        if body.get("use_beam_search"):
            wanted = max(wanted, _BEAM_LOG_PROBS * body.get("n", 1))
        self._log_probs = max(self._log_probs, wanted)

    def _take_silent(self, item: Item) -> None:
        for name in _NOTED:
            if item.get(name) and not (name == "model" and item[name] in self._models):
                self.silent[name] += 1
