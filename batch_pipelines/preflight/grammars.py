"""Compiling what sets the form of a text, within the helper: by the engine's own libraries, and as it does.

The rules are those of vLLM 0.32 (`SamplingParams._validate_structured_outputs` and
`v1/structured_output/backend_{xgrammar,guidance}`): which library takes what, and what passes. vLLM then
compiles within the engine, where a failure is an error without a reason, and a compilation or a search for
the next token that does not end stops everything; so here it is compiled and followed for some tokens too.

Not here: `outlines`, which `auto` takes where neither of the two can enforce a schema, and
`lm-format-enforcer`.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from batch_pipelines.api.nesting import nests_deeper
from batch_pipelines.preflight.followers import GuidanceFollower, XgrammarFollower
from batch_pipelines.preflight.json_features import (
    not_for_guidance,
    not_for_xgrammar,
    passed_over_by_xgrammar,
    refers_elsewhere,
)
from batch_pipelines.preflight.probe import Probe, follow, follow_paths
from batch_pipelines.preflight.repetitions import MOST_PLACES, nested_places, patterns_in
from batch_pipelines.preflight.tokens import BYTES, Tokens

__all__ = ["Grammars", "Judgement"]

_DEEPEST: Final = 64
"""vLLM's `MAX_STRUCTURED_OUTPUT_JSON_NESTING`."""
_REGEX_SEC: Final = 5.0
"""vLLM's `VLLM_REGEX_COMPILATION_TIMEOUT_S`."""
_THREADS: Final = 8
_PLACE: Final = re.compile(r"^\[[\d:]+\] \S+:\d+: (?:Check failed: \(.*?\) is false: )?", re.DOTALL)
_LINE_COMMENT: Final = re.compile(r"(?:#|//).*$")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONGEST_REASON: Final = 300
_ANY_OBJECT: Final = '{"type": "object"}'
_REFUSALS: Final = (RuntimeError, ValueError, TypeError)
"""What the libraries raise for input they do not take."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a specification.

    Attributes:
        error: Why it is refused, if it is.
        backend: The library that takes it, `xgrammar` or `guidance`.
        token_sec: Seconds it can take to find which tokens may come next.
        note: What in it is not enforced, though it is taken.
    """

    error: str | None = None
    backend: str | None = None
    token_sec: float = 0.0
    note: str | None = None


class Grammars:
    """Judges specifications for one model."""

    def __init__(self, tokens: Tokens | None, vocab_size: int | None, stop_ids: tuple[int, ...]) -> None:
        """Import the libraries, which takes seconds.

        Args:
            tokens: The model's tokenizer, if it is known.
            vocab_size: Rows of the model's output.
            stop_ids: Tokens that end a text.

        Raises:
            ImportError: A library is not installed.
        """
        import llguidance
        import xgrammar

        self._xgrammar: Any = xgrammar
        self._llguidance: Any = llguidance
        self._tokens = tokens
        self._vocabulary = tokens.vocabulary(vocab_size, stop_ids) if tokens is not None else BYTES

    def judge(self, kind: str, form: Any, backend: str) -> Judgement:
        """Whether the engine takes a specification, and survives it.

        Args:
            kind: `json`, `json_object`, `regex`, `choice`, `grammar`, or `tool`: the schema of its arguments.
            form: The specification: a schema, a text, or a list of strings.
            backend: `xgrammar`, `guidance`, or `auto`: the first of the two that takes it.
        """
        refused = _refused_anywhere(kind, form) or _repeats_too_much(kind, form)
        if refused is not None:
            return Judgement(refused)
        if kind == "tool":
            return self._judge_tool(form) if backend != "guidance" else Judgement(_NO_TOOLS)
        if backend == "guidance":
            return self._by_guidance(kind, form)
        refused = self._xgrammar_refuses(kind, form)
        if refused is None:
            return self._by_xgrammar(kind, form)
        if backend == "xgrammar" or (kind == "grammar" and not _is_lark(form)):
            # llguidance reads a broken EBNF grammar as one of its own kind, which then means something else.
            return Judgement(f"xgrammar does not take it: {refused}")
        if kind == "json" and (unenforced := not_for_guidance(form)) is not None:
            return Judgement(
                f"xgrammar does not take it: {refused}; llguidance does not enforce {unenforced}"
            )
        judged = self._by_guidance(kind, form)
        if judged.error is None:
            return judged
        return Judgement(f"xgrammar does not take it: {refused}; {judged.error}")

    def _judge_tool(self, form: Any) -> Judgement:
        """The schema of a tool's arguments: xgrammar enforces it, whatever it does not know of it."""
        judged = self._by_xgrammar("tool", form)
        unenforced = not_for_xgrammar(form) if form and judged.error is None else None
        return judged if unenforced is None else replace(judged, note=f"{unenforced} is not enforced")

    def _xgrammar_refuses(self, kind: str, form: Any) -> str | None:
        try:
            if kind == "json" and form and (unenforced := not_for_xgrammar(form)) is not None:
                return f"it does not enforce {unenforced}"
            grammar = self._xgrammar.Grammar
            if kind == "json" and form:
                grammar.from_json_schema(form)
            elif kind == "regex" and form:
                grammar.from_regex(form)
            elif kind == "choice":
                grammar.from_ebnf(_choice_grammar(form))
            elif kind == "grammar":
                (grammar.from_lark if _is_lark(form) else grammar.from_ebnf)(form)
        except _REFUSALS as error:
            return _reason(error)
        return None

    def _by_xgrammar(self, kind: str, form: Any) -> Judgement:
        start = time.monotonic()
        try:
            compiled = self._compile(kind, form)
            took = time.monotonic() - start
            if kind == "regex" and took > _REGEX_SEC:
                return Judgement(
                    f"it takes {took:.1f} s to compile; the engine gives a pattern {_REGEX_SEC:g} s"
                )
            probe = follow_paths(
                lambda: XgrammarFollower(self._xgrammar, compiled, self._vocabulary),
                self._vocabulary.stop_ids,
            )
            judged = _judgement("xgrammar", probe)
        except _REFUSALS as error:
            return Judgement(f"xgrammar cannot compile it: {_reason(error)}")
        if kind not in ("json", "tool") or judged.error is not None:
            return judged
        if refers_elsewhere(form):
            return replace(judged, note="a `$ref` to another document is not followed: anything may be there")
        unkept = passed_over_by_xgrammar(form)
        return judged if unkept is None else replace(judged, note=f"{unkept} is not enforced")

    def _compile(self, kind: str, form: Any) -> Any:
        compiler = self._compiler
        if kind == "regex":
            return compiler.compile_regex(form)
        if kind == "choice":
            return compiler.compile_grammar(_choice_grammar(form))
        if kind == "grammar":
            return (compiler.compile_lark if _is_lark(form) else compiler.compile_grammar)(form)
        schema = _ANY_OBJECT if kind == "json_object" else json.dumps(form)
        return compiler.compile_json_schema(schema, any_whitespace=True)

    @cached_property
    def _compiler(self) -> Any:
        xgrammar, vocabulary = self._xgrammar, self._vocabulary
        spelling = xgrammar.VocabType[vocabulary.spelling.upper()]
        info = xgrammar.TokenizerInfo(
            list(vocabulary.texts), spelling, stop_token_ids=list(vocabulary.stop_ids)
        )
        return xgrammar.GrammarCompiler(info, max_threads=_THREADS, cache_enabled=False)

    def _by_guidance(self, kind: str, form: Any) -> Judgement:
        matcher = self._llguidance.LLMatcher
        try:
            grammar = self._guidance_grammar(kind, form)
        except _REFUSALS as refusal:
            return Judgement(f"llguidance does not take it: {_reason(refusal)}")
        error = matcher.validate_grammar(grammar, None)
        if error:
            return Judgement(f"llguidance does not take it: {_short(error)}")
        tokenizer = self._guidance_tokenizer
        follower = GuidanceFollower(matcher(tokenizer, grammar, log_level=0))
        probe = follow(follower, (tokenizer.eos_token,))
        # With a matcher in error the engine goes on and lets the text end: an empty answer, and no word why.
        if follower.error and not probe.possible:
            return Judgement(f"llguidance cannot follow it: {_short(follower.error.partition('<state>')[0])}")
        return _judgement("guidance", probe)

    def _guidance_grammar(self, kind: str, form: Any) -> str:
        if kind in ("json", "json_object"):
            schema = _ANY_OBJECT if kind == "json_object" else json.dumps(form)
            made: str = self._llguidance.LLMatcher.grammar_from_json_schema(
                schema, defaults={"whitespace_flexible": True}
            )
            return made
        text: str = self._llguidance.grammar_from(kind, json.dumps(form) if kind == "choice" else form)
        return text

    @cached_property
    def _guidance_tokenizer(self) -> Any:
        if self._tokens is None:
            return self._llguidance.LLTokenizer("byte")
        return self._llguidance.LLTokenizer(
            self._tokens.as_json(),
            n_vocab=max(len(self._vocabulary.texts), self._tokens.size),
            eos_token=self._vocabulary.stop_ids[0],
        )


_NO_TOOLS: Final = (
    "calls of tools are enforced by xgrammar alone, and the library for this job's forms is llguidance; put "
    "them in a job of their own"
)
_PRESENT: Final[dict[str, Callable[[Any], str | None]]] = {
    "choice": lambda form: None if form else "is an empty list",
    "grammar": lambda form: None if form.strip() else "is empty",
    "regex": lambda form: "has a NUL character" if "\x00" in form else None,
}


def _repeats_too_much(kind: str, form: Any) -> str | None:
    patterns = [form] if kind == "regex" else patterns_in(form) if kind in ("json", "tool") else ()
    worst = max(map(nested_places, patterns), default=1)
    if worst <= MOST_PLACES:
        return None
    return (
        f"it has repetitions within repetitions of {worst:,} places at once, which can take the engine "
        f"seconds a token; at most {MOST_PLACES:,} are taken"
    )


def _refused_anywhere(kind: str, form: Any) -> str | None:
    check = _PRESENT.get(kind)
    if check is not None:
        return check(form)
    if kind in ("json", "tool") and form and nests_deeper(form, _DEEPEST):
        return f"nests deeper than {_DEEPEST} levels"
    return None


def _judgement(backend: str, probe: Probe) -> Judgement:
    if not probe.possible:
        return Judgement("no text can keep to it")
    return Judgement(backend=backend, token_sec=probe.token_sec)


def _is_lark(grammar: str) -> bool:
    return not any("::=" in _LINE_COMMENT.sub("", line) for line in grammar.split("\n"))


def _choice_grammar(choices: list[str]) -> str:
    return "root ::= " + " | ".join(f'"{"".join(map(_escaped, choice))}"' for choice in choices)


def _escaped(character: str) -> str:
    control = ord(character) < 0x20 or ord(character) == 0x7F
    return _ESCAPES.get(character) or (f"\\u{ord(character):04x}" if control else character)


def _reason(error: BaseException) -> str:
    return _short(_PLACE.sub("", str(error))) or type(error).__name__


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}..."
