"""From the messages a request carries to the conversation a chat template is given, within the helper.

The steps are those of vLLM 0.32 (`renderers/chat_utils` and `renderers/hf`): texts are joined or kept as
parts, as the template reads them; arguments of calls become objects; `developer` becomes `system` where the
template does not know it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import nodes

__all__ = ["conversation", "reads_parts", "tools_for_template"]

_TEXTS: Final = {"text": "text", "refusal": "refusal"}
_AN_IMAGE: Final = {"type": "image"}

Message = Mapping[str, Any]


def reads_parts(template: nodes.Template) -> bool:
    """Whether a template goes through the parts of a message's content, rather than taking it as text."""
    return any(_is_content(loop.iter) for loop in template.find_all(nodes.For))


def conversation(messages: list[Message], *, as_parts: bool, knows_developer: bool) -> list[dict[str, Any]]:
    """What a template is given for a request's messages.

    Args:
        messages: Their contents are texts, or text parts.
        as_parts: Whether the template reads contents as parts.
        knows_developer: Whether the template has the role `developer`.
    """
    made = [_message(message, as_parts) for message in messages]
    if knows_developer or all(message["role"] != "developer" for message in made):
        return made
    system = [message for message in made if message["role"] in ("developer", "system")]
    others = [message for message in made if message["role"] not in ("developer", "system")]
    texts = [text for message in system if (text := _text(message["content"], "\n"))]
    if len(system) == 1 and made[0] is system[0]:
        return [{**system[0], "role": "system"}, *others]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]


def tools_for_template(tools: list[Message] | None) -> list[dict[str, Any]] | None:
    """What a template is given for a request's tools: all their keys, also those left out."""
    if not tools:
        return None
    return [{"type": "function", "function": _function(tool["function"])} for tool in tools]


def _function(function: Message) -> dict[str, Any]:
    made = {name: function.get(name) for name in ("name", "description", "parameters")}
    return made if function.get("strict") is None else {**made, "strict": function["strict"]}


def _message(message: Message, as_parts: bool) -> dict[str, Any]:
    role = message["role"]
    made: dict[str, Any] = {"role": role, "content": _content(message.get("content"), as_parts)}
    if role == "assistant":
        if message.get("tool_calls"):
            made["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
        if (reasoning := message.get("reasoning", message.get("reasoning_content"))) is not None:
            made |= {"reasoning": reasoning, "reasoning_content": reasoning}
    elif role == "tool":
        made["tool_call_id"] = message.get("tool_call_id")
        made["content"] = _text(made["content"], "\n")
    elif role == "developer":
        made["tools"] = message.get("tools")
    if isinstance(message.get("name"), str):
        made["name"] = message["name"]
    return made


def _content(content: Any, as_parts: bool) -> str | list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if as_parts:
        return [
            {"type": "text", "text": part[_TEXTS[part["type"]]]} if part["type"] in _TEXTS else _AN_IMAGE
            for part in parts
        ]
    return "\n".join(part[_TEXTS[part["type"]]] for part in parts if part["type"] in _TEXTS)


def _text(content: str | list[dict[str, Any]], separator: str) -> str:
    return content if isinstance(content, str) else separator.join(part.get("text", "") for part in content)


def _with_object(call: Message) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError:
        arguments = {}
    # In vLLM's order of keys, which a template may print.
    made = {"arguments": arguments if isinstance(arguments, dict) else {}, "name": function["name"]}
    return {"id": call["id"], "function": made, "type": "function"}


def _is_content(node: nodes.Node) -> bool:
    while isinstance(node, nodes.Filter | nodes.Test) and node.node is not None:
        node = node.node
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Const):
            return bool(node.arg.value == "content")
        return isinstance(node.arg, nodes.Slice) and _is_content(node.node)
    return isinstance(node, nodes.Name) and node.name == "content"
