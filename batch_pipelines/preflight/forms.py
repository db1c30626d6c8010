"""Whether the engine can enforce the forms of text that a job's items ask for.

A form is what restricts the text: a JSON Schema, a pattern, a list of choices, a grammar, or a schema of a
tool's arguments. Each distinct one is judged once, by the helper.

An engine of vLLM's uses one library for all forms: with the backend `auto`, the one that its first such
request needs, whatever the others need, and in the other library's hands a form fails, or is passed over in
silence. So here too the first item decides, and items that need the other library are refused; `backend` says
which it is, for the engine to be started with.
"""

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.helper import Helper, HelperLost, HelperUnusable
from batch_pipelines.preflight.refusal import refusal
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.translation.forms import sets_a_form

__all__ = ["FORM_FIELDS", "Forms"]

FORM_FIELDS: Final = frozenset(
    {
        "response_format",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "tools",
        "functions",
    }
)
_JUDGED: Final = ("auto", "xgrammar", "guidance")
_SLOW_TOKEN_SEC: Final = 0.02
_SMALL_CHOICES: Final = 2**14
"""Bytes of a list of choices that either library compiles within 0.1 s, whatever is in it."""
_ANY_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object"}
_INDEX: Final = re.compile(r"\[\d+\]")
_MOST_KEPT: Final = 4096
_MOST_LOST: Final = 30

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Form:
    field: str
    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class _Verdict:
    error: str | None = None
    note: str | None = None


class Forms:
    """Judges the forms of one job's items."""

    def __init__(
        self,
        settings: PreflightSettings,
        helper: Helper,
        loads: Mapping[str, Mapping[str, Any]],
        notes: Counter[str],
    ) -> None:
        """Take what to judge with.

        Args:
            settings: The limits, and the engine's backend.
            helper: What judges.
            loads: What the helper must load first.
            notes: Where notes are counted.
        """
        self._settings = settings
        self._helper = helper
        self._loads = loads
        self._notes = notes
        self._backend = settings.structured_backend
        self._decided = False
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._lost = 0

    @property
    def backend(self) -> str | None:
        """The library that all items so far can do with; none if no item has a form."""
        return None if self._backend == "auto" else self._backend

    def check(self, item: Mapping[str, Any], body: Body) -> ItemError | None:
        """Why the engine could not enforce the form an item asks for.

        Args:
            item: The item.
            body: The engine's request for it, without the model's name.
        """
        wanted = item.get("guided_decoding_backend") or "auto"
        if wanted not in ("auto", self._backend):
            if self._decided:
                return refusal(
                    "guided_decoding_backend",
                    f"is {wanted!r}, but the forms of the items before it are enforced by {self._backend}, "
                    "and an engine has one library for all; give it in all items of the job, or in none",
                )
            self._backend = wanted
            self._verdicts.clear()
        self._decided |= wanted != "auto"
        for form in _forms(item, body):
            verdict = self._verdict(form)
            if verdict.note is not None:
                self._notes[f"{_INDEX.sub('[]', form.field)}: {verdict.note}"] += 1
            if verdict.error is not None:
                return refusal(form.field, verdict.error)
        return None

    def _verdict(self, form: _Form) -> _Verdict:
        if self._backend not in _JUDGED:
            return _Verdict(note=f"not checked, since the backend is {self._backend}")
        data = orjson.dumps([form.kind, form.value])
        if len(data) > self._settings.max_form_bytes:
            return _Verdict(
                f"has {len(data):,} bytes as JSON; at most {self._settings.max_form_bytes:,} are compiled"
            )
        if form.kind == "choice" and form.value and len(data) <= _SMALL_CHOICES:
            return _Verdict()  # often each item has its own
        key = hashlib.blake2b(data, digest_size=16).digest()
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self._judge(form)
            if len(self._verdicts) > _MOST_KEPT:
                self._verdicts.popitem(last=False)
        else:
            self._verdicts.move_to_end(key)
        return known

    def _judge(self, form: _Form) -> _Verdict:
        if self._lost >= _MOST_LOST:
            return _Verdict(
                f"was not tried, after {self._lost} others of this job could not be compiled in time"
            )
        try:
            answer = self._ask(form, self._backend)
            if answer.get("error") and self._decided and self._ask(form, "auto")["error"] is None:
                answer = {**answer, "error": f"{answer['error']}; {self._other_library()}"}
        except HelperUnusable as reason:
            return _Verdict(note=f"not checked: {reason}")
        except HelperLost as loss:
            self._lost += 1
            return _Verdict(f"cannot be used: compiling it and trying some tokens {loss}")
        return self._read(form, answer)

    def _ask(self, form: _Form, backend: str) -> dict[str, Any]:
        request = {"kind": form.kind, "form": form.value, "backend": backend}
        return self._helper.ask("form", request, seconds=self._settings.compile_sec, loads=self._loads)

    def _read(self, form: _Form, answer: Mapping[str, Any]) -> _Verdict:
        if "unjudged" in answer:
            return _Verdict(note=f"not checked: {answer['unjudged']}")
        if answer["error"] is not None:
            return _Verdict(f"cannot be used: {answer['error']}")
        slow: float = answer["token_sec"]
        if slow >= self._settings.token_sec:
            return _Verdict(
                f"cannot be used: it takes {slow:.1f} s to find which tokens may come next, and the engine "
                f"does nothing else meanwhile (limit {self._settings.token_sec:g} s); avoid repetitions of "
                "what has repetitions within"
            )
        if form.kind != "json_object":  # which either library can do
            self._decided = True
            if self._backend == "auto":
                self._backend = answer["backend"]
        note: str | None = answer["note"]
        if note is None and slow >= _SLOW_TOKEN_SEC:
            note = "slow: it can take the engine more than 20 ms a token"
        return _Verdict(note=note)

    def _other_library(self) -> str:
        return (
            "the engine's other library would take it, but the items before it decided for "
            f"{self._backend}, and an engine has one for all; put it in another job"
        )


def _forms(item: Mapping[str, Any], body: Body) -> Iterator[_Form]:
    for kind, value in (body.get("structured_outputs") or {}).items():
        yield _Form(sets_a_form(item) or "structured_outputs", kind, value)
    form = body.get("response_format") or {}
    if form.get("type") == "json_object":
        yield _Form("response_format", "json_object", None)
    elif form.get("type") == "json_schema":
        yield _Form("response_format.json_schema.schema", "json", form["json_schema"]["schema"])
    yield from _tool_forms(item, body)


def _tool_forms(item: Mapping[str, Any], body: Body) -> Iterator[_Form]:
    """What vLLM makes a grammar of: calls that are forced or limited to one, arguments of strict tools."""
    choice = body.get("tool_choice", "auto")
    if choice == "none":
        return
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    enforced = choice != "auto" or body.get("parallel_tool_calls") is False
    path = "tools[{}].function.parameters" if item.get("tools") else "functions[{}].parameters"
    for at, tool in enumerate(body.get("tools") or ()):
        function = tool["function"]
        if named not in (None, function["name"]):
            continue
        if function.get("strict") and function.get("parameters"):
            yield _Form(path.format(at), "tool", function["parameters"])
        elif enforced:
            yield _Form(path.format(at), "tool", _ANY_ARGUMENTS)
