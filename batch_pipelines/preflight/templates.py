"""Chat templates: an item's own, and what items give to templates that do not use it.

Compiling and rendering are the helper's.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.helper import Helper, HelperLost
from batch_pipelines.preflight.model_folder import ModelFolder
from batch_pipelines.preflight.refusal import refusal
from batch_pipelines.preflight.settings import PreflightSettings

__all__ = ["TEMPLATE_FIELDS", "Templates"]

TEMPLATE_FIELDS: Final = frozenset(
    {"chat_template", "chat_template_kwargs", "documents", "reasoning_effort", "tools", "functions"}
)
_TAKEN: Final = frozenset({"messages", "conversation", "conversations", "model_config", "tokenizer"})
"""Names that vLLM and transformers pass to a template, or to what renders it, by themselves."""
_RENDERED: Final = frozenset(
    {
        "messages",
        "tools",
        "documents",
        "reasoning_effort",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
    }
)
_GIVEN: Final = {
    "documents": {"documents"},
    "reasoning_effort": {"reasoning_effort", "enable_thinking"},
    "tools": {"tools"},
    "functions": {"tools"},
}
"""Fields that go to the template, and the variables that they go by."""
_MOST_CHARACTERS: Final = 64 * 2**20
_MOST_KNOWN: Final = 64


class Templates:
    """Checks what the items of one job do with chat templates."""

    def __init__(
        self,
        folder: ModelFolder,
        settings: PreflightSettings,
        helper: Helper,
        notes: Counter[str] | None = None,
    ) -> None:
        """Take what to check with.

        Args:
            folder: The model's own templates.
            settings: The template that replaces them, and the limits.
            helper: What compiles and renders.
            notes: Where notes are counted, if anywhere.
        """
        self._folder = folder
        self._settings = settings
        self._helper = helper
        self._notes = notes if notes is not None else Counter()
        self._variables: dict[bytes, frozenset[str] | str] = {}

    def of(self, body: Mapping[str, Any]) -> str | None:
        """The template that the engine renders a chat with; none if there is none.

        Args:
            body: The engine's request for the chat.
        """
        given = body.get("chat_template") or self._settings.chat_template
        return self._folder.template(given, tools=bool(body.get("tools")))

    def variables(self, template: str) -> frozenset[str] | str:
        """What a template uses, or why it does not compile."""
        key = hashlib.blake2b(template.encode(), digest_size=16).digest()
        known = self._variables.get(key)
        if known is None:
            if len(self._variables) >= _MOST_KNOWN:
                self._variables.clear()
            known = self._variables[key] = self._ask_variables(template)
        return known

    def check(self, item: Mapping[str, Any], body: Mapping[str, Any]) -> ItemError | None:
        """Check what an item gives to its template, and count what the template does not use.

        Args:
            item: A chat.
            body: The engine's request for it.
        """
        given: Mapping[str, Any] = item.get("chat_template_kwargs") or {}
        if "chat_template" in given:
            return refusal("chat_template_kwargs.chat_template", "is not taken; give it as `chat_template`")
        taken = next((name for name in given if name in _TAKEN), None)
        if taken is not None:
            return refusal(
                f"chat_template_kwargs.{taken}", "is a name that the engine itself uses; rename it"
            )
        template = self.of(body)
        if template is None:
            return None
        used = self.variables(template)
        if isinstance(used, str):
            return refusal("chat_template", used) if body.get("chat_template") else None
        whose = "the item's" if body.get("chat_template") else "the model's"
        for field in _GIVEN:
            if item.get(field) and used.isdisjoint(_GIVEN[field]):
                self._notes[f"{field}: {whose} chat template does not use it"] += 1
        if given.keys() - used:
            self._notes[f"chat_template_kwargs: {whose} chat template does not use all of them"] += 1
        return None

    def render(
        self,
        template: str,
        body: Mapping[str, Any],
        *,
        loads: Mapping[str, Mapping[str, Any]],
        enough: int | None,
    ) -> int | None:
        """Render a chat, and count its tokens if asked to.

        Args:
            template: What to render it with.
            body: The engine's request for it.
            loads: What the helper must load to count.
            enough: Tokens beyond which it need not be counted exactly; None to not count it.

        Returns:
            Its tokens, if they were to be counted and the tokenizer could be loaded.

        Raises:
            HelperLost: The helper did not survive it, or it took too long.
            HelperUnusable: The helper cannot load the tokenizer.
            ValueError: The template does not compile or render; the message says why.
        """
        request = {
            "template": template,
            "chat": {name: value for name, value in body.items() if name in _RENDERED},
            "special_tokens": dict(self._folder.special_tokens),
            "characters": _MOST_CHARACTERS,
            "special": bool(body.get("add_special_tokens")),
            "enough": enough,
        }
        answer = self._helper.ask("render", request, seconds=self._settings.compile_sec, loads=loads)
        if "error" in answer:
            raise ValueError(answer["error"])
        tokens: int | None = answer["tokens"]
        return tokens

    def _ask_variables(self, template: str) -> frozenset[str] | str:
        try:
            answer = self._helper.ask(
                "variables", {"template": template}, seconds=self._settings.compile_sec, loads={}
            )
        except HelperLost as loss:
            return f"cannot be compiled: it {loss}"
        return answer["error"] if "error" in answer else frozenset(answer["variables"])
