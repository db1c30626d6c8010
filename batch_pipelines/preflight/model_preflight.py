"""Checking each item of a job against its model.

Which checks an item needs is decided here, by a few look-ups for an item that uses nothing special; the
checks are in modules of their own.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.chats import Chats
from batch_pipelines.preflight.forms import FORM_FIELDS, Forms
from batch_pipelines.preflight.helper import Helper
from batch_pipelines.preflight.model_folder import read_model_folder
from batch_pipelines.preflight.prompts import Prompts
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.preflight.templates import TEMPLATE_FIELDS, Templates
from batch_pipelines.preflight.token_ids import check_logit_bias, check_stop_ids
from batch_pipelines.preflight.tool_choice import check_tools
from batch_pipelines.translation.translate import draft_of

__all__ = ["ModelPreflight"]

_BY_BODY: Final = FORM_FIELDS | TEMPLATE_FIELDS
_SPECIAL: Final = _BY_BODY | {"logit_bias", "stop_token_ids"}

Item = Mapping[str, Any]


class ModelPreflight:
    """Checks the items of one job; see `batch_pipelines.preflight.protocol.Preflight`. For one thread.

    Attributes:
        notes: What items set without effect on this model, and how many did.
    """

    def __init__(self, folder: Path, settings: PreflightSettings) -> None:
        """Read the checkpoint's small files. The helper is started by the first item that needs it.

        Args:
            folder: The checkpoint's folder; its weights need not be there.
            settings: How the engine will be set up.
        """
        self.notes: Counter[str] = Counter()
        self._settings = settings
        model = read_model_folder(folder, settings)
        self._helper = helper = Helper(memory_bytes=settings.memory_bytes)
        self._prompts = Prompts(model, settings, helper, self.notes)
        self._templates = Templates(model, settings, helper, self.notes)
        self._chats = Chats(model, settings, self._templates, self._prompts)
        grammars = {"vocab_size": settings.vocab_size, "stop_ids": model.stop_ids}
        loads = {**self._prompts.loads, "load_grammars": grammars}
        self._forms = Forms(settings, helper, loads, self.notes)
        self._auto_tools = settings.auto_tools or model.calls_found_anyway
        self._uses_template = not model.own_rendering
        self._v1_header: Item = {}

    @property
    def structured_backend(self) -> str | None:
        """See `Preflight.structured_backend`."""
        return self._forms.backend

    def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
        """See `Preflight.check`."""
        if kind == "v1":
            return self._prompts.check(kind, self._v1_header, item, size)
        if kind == "chat":
            error = self._chats.check_messages(item)
        else:
            error = self._prompts.check(kind, item, item.get("prompt"), size)
        lengths = self._prompts.lengths
        if error is None and lengths is not None:
            error = lengths.check_limit(kind, item)
        if error is None and not _SPECIAL.isdisjoint(item):
            error = self._check_ids(item) or self._check_by_body(kind, item)
        if error is None and kind == "chat" and self._chats.must_render(item, size):
            error = self._check_rendered(item, size)
        return error

    def check_v1_header(self, header: Item) -> ItemError | None:
        """See `Preflight.check_v1_header`."""
        self._v1_header = header
        lengths = self._prompts.lengths
        return lengths.check_limit("v1", header) if lengths is not None else None

    def close(self) -> None:
        """End the helper."""
        self._helper.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the helper."""
        self.close()

    def _check_ids(self, item: Item) -> ItemError | None:
        size = self._settings.vocab_size
        if bias := item.get("logit_bias"):
            error = check_logit_bias(bias, size)
            if error is not None:
                return error
        stops = item.get("stop_token_ids")
        return check_stop_ids(stops, size) if stops and size is not None else None

    def _check_by_body(self, kind: ItemKind, item: Item) -> ItemError | None:
        """Check fields that are sent in another form than they are given."""
        if _BY_BODY.isdisjoint(item):
            return None
        error = check_tools(item, auto_tools=self._auto_tools) if kind == "chat" else None
        if error is not None:
            return error
        draft = draft_of(kind, item)
        if isinstance(draft, ItemError):
            return draft
        if kind == "chat" and self._uses_template:
            error = self._templates.check(item, draft.body)
        return error or self._forms.check(item, draft.body)

    def _check_rendered(self, item: Item, size: int) -> ItemError | None:
        draft = draft_of("chat", item)
        return draft if isinstance(draft, ItemError) else self._chats.check_prompt(item, draft.body, size)
