"""Chats: what is in their messages, and whether the prompt a template makes of them fits the model."""

from collections.abc import Mapping
from typing import Any, Final

from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.content import check_parts, has_images
from batch_pipelines.preflight.helper import HelperLost, HelperUnusable
from batch_pipelines.preflight.model_folder import ModelFolder
from batch_pipelines.preflight.prompts import NO_TOKENIZER, Prompts
from batch_pipelines.preflight.protocol import ModelUnfit
from batch_pipelines.preflight.refusal import refusal
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.preflight.templates import Templates

__all__ = ["NO_TEMPLATE", "Chats"]

NO_TEMPLATE: Final = (
    "the model has no chat template; use a model that is made for chats, set model_config.chat_template, or "
    "send prompts"
)

Item = Mapping[str, Any]


class Chats:
    """Checks the messages of one job's chats."""

    def __init__(
        self, folder: ModelFolder, settings: PreflightSettings, templates: Templates, prompts: Prompts
    ) -> None:
        """Take what to check with.

        Args:
            folder: The model's templates.
            settings: What the engine takes.
            templates: What renders them.
            prompts: What knows the context and the tokenizer.
        """
        self._settings = settings
        self._templates = templates
        self._prompts = prompts
        self._items_bring_templates = False
        self._own_rendering = folder.own_rendering
        self._has_template = (
            folder.own_rendering
            or folder.engine_has_template
            or settings.chat_template is not None
            or "default" in folder.templates
        )

    def check_messages(self, item: Item) -> ItemError | None:
        """Check what there is to send, without rendering it."""
        messages = item["messages"]
        for message in messages:
            if type(message.get("content")) is list:
                error = check_parts(messages, self._settings)
                if error is not None:
                    return error
                break
        if self._settings.skip_tokenizer:
            return refusal("messages", f"a chat {NO_TOKENIZER}; send prompts of token ids")
        if self._has_template:
            return None
        if item.get("chat_template"):
            self._items_bring_templates = True
        elif self._items_bring_templates:
            return refusal("messages", f"cannot be made a prompt: {NO_TEMPLATE}")
        else:
            raise ModelUnfit(f"chats: {NO_TEMPLATE}")
        return None

    def must_render(self, item: Item, size: int) -> bool:
        """Whether an item's prompt must be looked at: it has its own template, or may be too long."""
        if item.get("chat_template"):
            return True
        return self._prompts.is_suspicious(size) and not self._own_rendering

    def check_prompt(self, item: Item, body: Mapping[str, Any], size: int) -> ItemError | None:
        """Render a chat, and compare its length with the context.

        What only the model's own template refuses is left to the engine, which knows it best.

        Args:
            item: The chat.
            body: The engine's request for it.
            size: Bytes of its JSON.
        """
        template = self._templates.of(body)
        if template is None:
            return None
        own = bool(item.get("chat_template"))
        lengths = self._prompts.lengths
        counts = self._prompts.is_suspicious(size) and not has_images(body["messages"])
        try:
            tokens = self._templates.render(
                template,
                body,
                loads=self._prompts.loads if counts else {},
                enough=lengths.enough if lengths is not None and counts else None,
            )
        except ValueError as failure:
            return refusal("chat_template", str(failure)) if own else None
        except HelperUnusable:
            return None
        except HelperLost as loss:
            field = "chat_template" if own else "messages"
            return refusal(field, f"cannot be rendered and made tokens: it {loss}")
        if tokens is None or lengths is None:
            return None
        return lengths.check_counts("chat", item, [tokens], ["messages"], size)
