"""How an item's request goes on from a text: it follows a prompt, and is the begun last message of a chat.

What a reply adds is in `rounds`.
"""

from typing import Any

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engines.protocol import EngineRequest
from batch_pipelines.tool_use.code_blocks import CALL
from batch_pipelines.tool_use.rounds import Transcript, dump
from batch_pipelines.translation.sampling import COMPLETION_TOKENS

__all__ = ["Prompt"]


class Prompt:
    """An item's request, to be asked again and again with more text."""

    def __init__(self, kind: ItemKind, path: str, body: dict[str, Any]) -> None:
        """See the class.

        Args:
            kind: What the item is.
            path: Where its request goes.
            body: What its request says.
        """
        self.kind = kind
        self._path = path
        self._body = body
        stops = body.get("stop") or []
        self._stops = list(dict.fromkeys([*([stops] if isinstance(stops, str) else stops), CALL]))
        fields = ("max_completion_tokens", "max_tokens") if kind == "chat" else ("max_tokens",)
        self._limit_field = next((name for name in fields if body.get(name) is not None), fields[-1])
        self.limit: int | None = body.get(self._limit_field, None if kind == "chat" else COMPLETION_TOKENS)
        """Most tokens of the whole answer; None if the model's context is the only limit."""

    def continued(self, answer: Transcript, limit: int | None) -> EngineRequest:
        """The request for what follows the answer so far.

        Args:
            answer: The answer so far.
            limit: Most tokens to generate.
        """
        body = {**self._body, "stop": self._stops}
        if limit is not None:
            body[self._limit_field] = limit
        if body.get("min_tokens"):
            missing = max(0, body["min_tokens"] - answer.generated)
            body["min_tokens"] = missing if limit is None else min(missing, limit)
        if answer.text:
            body |= self._with(answer.text)
        return EngineRequest(self._path, dump(body))

    def _with(self, text: str) -> dict[str, Any]:
        if self.kind != "chat":
            return {"prompt": self._body["prompt"] + text}
        messages = self._body["messages"]
        if self._body.get("continue_final_message"):
            messages = [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + text}]
        else:
            messages = [*messages, {"role": "assistant", "content": text}]
        return {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
