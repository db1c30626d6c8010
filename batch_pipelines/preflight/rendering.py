"""Compiling and rendering chat templates, within the helper.

A template is a program of its sender's, so it runs in jinja2's sandbox, set up as transformers sets it up for
the engine, and under the helper's limits: it may loop for ever or ask for any amount of memory.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

from jinja2 import Environment, Template, TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batch_pipelines.preflight.conversation import conversation, reads_parts, tools_for_template

__all__ = ["Chat", "TemplateFails", "render", "variables"]

_CONTINUED: Final = "<the message is continued here>"
_FAILURES: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template can raise by what it does."""

Chat = Mapping[str, Any]
"""A request's body, as far as it goes into the prompt."""


class TemplateFails(Exception):
    """A template does not compile or does not render; the message says why."""


class _Generation(Extension):
    """Knows the block that marks what the assistant says; it renders as what is in it."""

    tags = {"generation"}  # noqa: RUF012 - so declared by jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def variables(text: str) -> frozenset[str]:
    """What a template takes from outside.

    Raises:
        TemplateFails: It does not compile.
    """
    return _compiled(text)[2]


def render(text: str, chat: Chat, special_tokens: Mapping[str, str], most: int) -> str:
    """The prompt of a chat.

    Args:
        text: The template.
        chat: The request's body, its messages without images.
        special_tokens: The tokenizer's, by the names they have in templates.
        most: Longest prompt, in characters.

    Raises:
        TemplateFails: The template does not compile, raises something, or makes more than that.
    """
    template, as_parts, _ = _compiled(text)
    knows_developer = "'developer'" in text or '"developer"' in text
    messages = conversation(chat["messages"], as_parts=as_parts, knows_developer=knows_developer)
    continues = bool(chat.get("continue_final_message"))
    if continues:
        _mark(messages[-1])
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate({**special_tokens, **_variables(chat), "messages": messages}):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise TemplateFails(f"renders to more than {most:,} characters")
    except _FAILURES as error:
        raise TemplateFails(f"fails: {_said(error)}") from error
    prompt = "".join(pieces)
    if continues:
        prompt, mark, _ = prompt.rpartition(_CONTINUED)
        if not mark:
            raise TemplateFails("does not show the last message, so that it cannot be continued")
    return prompt


def _variables(chat: Chat) -> dict[str, Any]:
    effort = chat.get("reasoning_effort")
    given = {"tools": tools_for_template(chat.get("tools")), "documents": None}
    given |= chat.get("chat_template_kwargs") or {}
    if effort is not None:
        given.setdefault("enable_thinking", effort != "none")
        given["reasoning_effort"] = effort
    if chat.get("documents") is not None:
        given["documents"] = chat["documents"]
    return {**given, "add_generation_prompt": chat.get("add_generation_prompt", True)}


def _mark(message: dict[str, Any]) -> None:
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + _CONTINUED
    else:
        for at in reversed(range(len(content))):
            if "text" in content[at]:
                content[at] = {**content[at], "text": content[at]["text"] + _CONTINUED}
                break


@lru_cache(maxsize=32)
def _compiled(text: str) -> tuple[Template, bool, frozenset[str]]:
    try:
        parsed = _environment().parse(text)
        names = frozenset(meta.find_undeclared_variables(parsed))
        return _environment().from_string(text), reads_parts(parsed), names
    except (*_FAILURES, SyntaxError) as error:
        raise TemplateFails(f"does not compile: {_said(error)}") from error


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - the engine's templates see local time


def _said(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    text = str(error) or type(error).__name__
    return f"{text} (line {line})" if line else text
