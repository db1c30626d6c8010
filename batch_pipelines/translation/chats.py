"""Rules on a chat's messages and on how its template makes a prompt of them."""

from typing import Any

from batch_pipelines.translation.draft import Draft, Item, send
from batch_pipelines.translation.rewrites import without_prompt_logprobs
from batch_pipelines.translation.tools import with_tool_messages

__all__ = ["add_generation_prompt", "continue_final_message", "documents", "echo", "messages"]


def messages(draft: Draft, name: str, value: list[Item]) -> None:
    """Send them without what is null, in today's form.

    Clients that dump their objects send `"name": null`, and the engine refuses such a message.
    """
    clean = [_without_nulls(message) if None in message.values() else message for message in value]
    draft.body[name] = with_tool_messages(clean)


def _without_nulls(message: Item) -> Item:
    return {key: value for key, value in message.items() if value is not None or key == "content"}


def add_generation_prompt(draft: Draft, name: str, value: bool) -> str | None:
    """Send it, if it does not contradict `continue_final_message`."""
    if value and draft.item.get("continue_final_message"):
        return "cannot be true together with `continue_final_message`"
    return send(draft, name, value)


def continue_final_message(draft: Draft, name: str, value: bool) -> None:
    """Send it, and turn off what contradicts it and is on by default."""
    draft.body[name] = value
    if value and draft.item.get("add_generation_prompt") is None:
        draft.body["add_generation_prompt"] = False


def echo(draft: Draft, name: str, value: bool) -> None:
    """Send it, and leave out what the engine adds unasked: an entry for each token of the prompt."""
    if value:
        draft.body[name] = True
        if not draft.item.get("logprobs"):
            draft.rewrites.append(without_prompt_logprobs)


def documents(draft: Draft, name: str, value: list[dict[str, Any]]) -> str | None:
    """Send documents of texts, the only kind the engine takes."""
    for at, document in enumerate(value):
        for key, entry in document.items():
            if not isinstance(entry, str):
                return f"[{at}].{key} must be a string, as all values of a document"
    return send(draft, name, value)
