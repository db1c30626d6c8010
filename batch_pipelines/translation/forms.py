"""Rules on the form a text must have: JSON of a schema, a pattern, a choice, a grammar."""

from typing import Any, Final

from batch_pipelines.translation.draft import Draft
from batch_pipelines.translation.white_space import expression_of

__all__ = ["GUIDED", "guided", "guided_backend", "guided_whitespace", "response_format", "sets_a_form"]

GUIDED: Final = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
"""The older fields, and what they are called within vLLM's `structured_outputs`."""
BACKENDS: Final = ("auto", "xgrammar", "guidance")
"""Of vLLM 0.32's backends, those whose grammars can be tried before an engine starts. The others, outlines
and lm-format-enforcer, compile within the server, where a small pattern can keep them busy for ever."""


def sets_a_form(item: Any) -> str | None:
    """The field of an item that sets the form of its text, if one does."""
    for name in GUIDED:
        if item.get(name) is not None:
            return name
    form = item.get("response_format")
    return "response_format" if form is not None and form.get("type") != "text" else None


def response_format(draft: Draft, name: str, value: dict[str, Any]) -> str | None:
    """Send it; a schema is always kept to, `strict` or not."""
    draft.body[name] = value
    kind = value.get("type")
    if kind == "text":
        return None
    other = sets_a_form(draft.item)
    if other != name:
        return f"cannot be combined with `{other}`; each sets the form of the text"
    if kind == "json_schema" and value["json_schema"].get("schema") is None:
        return "has no `json_schema.schema`; give one, or use the type json_object"
    return None


def guided(draft: Draft, name: str, value: Any) -> str | None:
    """Send it as a structured output."""
    others = [field for field in GUIDED if field != name and draft.item.get(field) is not None]
    if others:
        return f"cannot be combined with `{others[0]}`; each sets the form of the text"
    pattern = draft.item.get("guided_whitespace_pattern")
    if name == "guided_json" and pattern is not None:
        try:
            expression = expression_of(value, pattern)
        except ValueError as error:
            return f"cannot be made a regular expression, as `guided_whitespace_pattern` asks: {error}"
        draft.body["structured_outputs"] = {"regex": expression}
    else:
        draft.body["structured_outputs"] = {GUIDED[name]: value}
    return None


def guided_whitespace(draft: Draft, _: str, __: str) -> str | None:
    """The work is done for `guided_json`."""
    if draft.item.get("guided_json") is None:
        return "means nothing without `guided_json`"
    return None


def guided_backend(draft: Draft, _: str, value: str) -> str | None:
    """Whether it is one of the engine's; that all items agree is checked over the whole job."""
    if value not in BACKENDS:
        return f"is {value!r}; give one of {', '.join(BACKENDS)}, or leave it out"
    if sets_a_form(draft.item) is None:
        return "means nothing without a form such as `guided_json`"
    return None
