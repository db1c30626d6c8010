"""Forms of text: which are judged, once each, and which library is settled on."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from batch_pipelines.preflight.forms import Forms
from batch_pipelines.preflight.helper import Helper, HelperLost, HelperUnusable
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.translation.translate import draft_of

LOADS: dict[str, dict[str, Any]] = {"load_tokenizer": {}, "load_grammars": {}}
Judge = Callable[[Mapping[str, Any]], dict[str, Any]]


def judged(
    error: str | None = None,
    backend: str | None = "xgrammar",
    token_sec: float = 0.0,
    note: str | None = None,
) -> dict[str, Any]:
    return {"error": error, "backend": None if error else backend, "token_sec": token_sec, "note": note}


class ScriptedHelper(Helper):
    """Judges as it is told to, and keeps what it was asked."""

    def __init__(self, judge: Judge = lambda _: judged()) -> None:
        super().__init__(memory_bytes=1)
        self.asked: list[Mapping[str, Any]] = []
        self._judge = judge

    def ask(
        self, op: str, request: Mapping[str, Any], *, seconds: float, loads: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        assert (op, loads) == ("form", LOADS)
        self.asked.append({**request, "seconds": seconds})
        return self._judge(request)


def forms(helper: Helper, **settings: Any) -> tuple[Forms, Counter[str]]:
    notes: Counter[str] = Counter()
    return Forms(PreflightSettings(**settings), helper, LOADS, notes), notes


def check(checked: Forms, **item: Any) -> str | None:
    kind: Any = "completion" if "prompt" in item else "chat"
    draft = draft_of(kind, item)
    body = getattr(draft, "body", None)
    assert body is not None, draft
    error = checked.check(item, body)
    return error.message if error is not None else None


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("item", "kind", "form"),
    [
        ({"guided_json": SCHEMA}, "json", SCHEMA),
        ({"guided_regex": "a+"}, "regex", "a+"),
        ({"guided_choice": []}, "choice", []),
        ({"guided_choice": ["a" * 2**14]}, "choice", ["a" * 2**14]),
        ({"guided_grammar": "start: A"}, "grammar", "start: A"),
        ({"response_format": {"type": "json_object"}}, "json_object", None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            "json",
            SCHEMA,
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_judged(item: Any, kind: str, form: Any) -> None:
    helper = ScriptedHelper()
    assert check(forms(helper)[0], prompt="a", **item) is None
    assert helper.asked == [{"kind": kind, "form": form, "backend": "auto", "seconds": 10.0}]


@pytest.mark.parametrize(
    "item", [{"response_format": {"type": "text"}}, {"guided_choice": ["a", "", "a"]}, {}], ids=str
)
def test_what_needs_no_judge(item: Any) -> None:
    helper = ScriptedHelper()
    checked, _ = forms(helper)
    assert check(checked, prompt="a", **item) is None
    assert helper.asked == []
    assert checked.backend is None


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"guided_json": SCHEMA}, "guided_json"),
        ({"guided_json": {"type": "integer"}, "guided_whitespace_pattern": " ?"}, "guided_json"),
        ({"guided_grammar": "x"}, "guided_grammar"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_a_refusal_names_the_field_and_the_reason(item: Any, param: str) -> None:
    checked, _ = forms(ScriptedHelper(lambda _: judged("it is wrong")))
    assert check(checked, prompt="a", **item) == f"{param}: cannot be used: it is wrong"


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "title": name}, **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": function(name, **more)}


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("item", "titles"),
    [
        ({"tools": [tool("a"), tool("b")]}, []),
        ({"tools": [tool("a", strict=True), tool("b")]}, ["a"]),
        ({"tools": [tool("a", strict=True)], "tool_choice": "none"}, []),
        ({"tools": [tool("a"), tool("b")], "tool_choice": "required"}, ["a", "b"]),
        ({"tools": [tool("a", strict=False), tool("b")], "tool_choice": "required"}, [None, "b"]),
        (
            {"tools": [tool("a"), tool("b")], "tool_choice": {"type": "function", "function": {"name": "b"}}},
            ["b"],
        ),
        ({"tools": [tool("a")], "parallel_tool_calls": False}, [None]),
        ({"functions": [function("a"), function("b")], "function_call": {"name": "b"}}, ["b"]),
    ],
    ids=str,
)
def test_which_tools_arguments_are_enforced(item: Any, titles: list[str | None]) -> None:
    helper = ScriptedHelper()
    assert check(forms(helper)[0], messages=MESSAGES, **item) is None
    assert [asked["form"].get("title") for asked in helper.asked] == titles
    assert all(asked["kind"] == "tool" for asked in helper.asked)


def test_a_refused_tool_is_named_by_its_place() -> None:
    checked, _ = forms(ScriptedHelper(lambda asked: judged("no" if asked["form"]["title"] == "b" else None)))
    said = check(checked, messages=MESSAGES, tools=[tool("a"), tool("b")], tool_choice="required")
    assert said == "tools[1].function.parameters: cannot be used: no"
    older = {"functions": [function("a"), function("b")], "function_call": {"name": "b"}}
    assert check(checked, messages=MESSAGES, **older) == "functions[1].parameters: cannot be used: no"


def test_each_form_is_judged_once() -> None:
    helper = ScriptedHelper(lambda asked: judged("no" if asked["form"] == "(" else None))
    checked, _ = forms(helper)
    for _ in range(3):
        assert check(checked, prompt="a", guided_regex="a") is None
        assert check(checked, prompt="a", guided_regex="(") is not None
        assert check(checked, prompt="a", guided_grammar="a") is None
    assert [asked["form"] for asked in helper.asked] == ["a", "(", "(", "a"]  # the refused one of both


def two_libraries(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Forms say by their first word which library takes them."""
    takes = str(asked["form"]).split()[0]
    if takes == "neither" or (takes != "either" and asked["backend"] not in ("auto", takes)):
        return judged(f"not by {asked['backend']}")
    return judged(backend="xgrammar" if takes == "either" else takes)


def test_the_first_form_decides_for_one_library() -> None:
    checked, _ = forms(ScriptedHelper(two_libraries))
    assert checked.backend is None
    assert check(checked, prompt="a", guided_regex="guidance") is None
    assert checked.backend == "guidance"
    assert check(checked, prompt="a", guided_regex="either") is None
    assert (
        check(checked, prompt="a", guided_regex="neither") == "guided_regex: cannot be used: not by guidance"
    )
    assert check(checked, prompt="a", guided_regex="xgrammar") == (
        "guided_regex: cannot be used: not by guidance; the engine's other library would take it, but the "
        "items before it decided for guidance, and an engine has one for all; put it in another job"
    )
    assert checked.backend == "guidance"


def test_a_refused_form_decides_for_none() -> None:
    checked, _ = forms(ScriptedHelper(two_libraries))
    assert check(checked, prompt="a", guided_regex="neither") == "guided_regex: cannot be used: not by auto"
    assert check(checked, prompt="a", guided_regex="guidance") is None
    assert checked.backend == "guidance"


def test_json_of_any_kind_decides_for_none() -> None:
    checked, _ = forms(ScriptedHelper())
    assert check(checked, prompt="a", response_format={"type": "json_object"}) is None
    assert checked.backend is None


def test_a_backend_that_items_name_is_taken_unless_others_came_first() -> None:
    helper = ScriptedHelper()
    checked, _ = forms(helper, structured_backend="xgrammar")
    named = {"prompt": "a", "guided_regex": "a", "guided_decoding_backend": "guidance"}
    assert check(checked, **named) is None
    assert helper.asked[-1]["backend"] == checked.backend == "guidance"
    assert check(checked, prompt="a", guided_regex="b") is None
    assert helper.asked[-1]["backend"] == "guidance"

    checked, _ = forms(ScriptedHelper())
    assert check(checked, prompt="a", guided_regex="a") is None
    said = check(checked, **named)
    assert said is not None
    assert said.startswith("guided_decoding_backend: is 'guidance', but the forms of the items before it are")


def test_a_library_that_is_not_judged_is_noted() -> None:
    helper = ScriptedHelper()
    checked, notes = forms(helper, structured_backend="outlines")
    assert check(checked, prompt="a", guided_regex="a") is None
    assert helper.asked == []
    assert notes == {"guided_regex: not checked, since the backend is outlines": 1}


def test_libraries_that_are_not_installed_are_noted_once_for_each_item() -> None:
    checked, notes = forms(ScriptedHelper(lambda _: {"unjudged": "No module named 'xgrammar'"}))
    for _ in range(2):
        assert check(checked, prompt="a", guided_regex="a") is None
    assert notes == {"guided_regex: not checked: No module named 'xgrammar'": 2}


def test_libraries_that_do_not_load_are_noted_and_refuse_nothing() -> None:
    def broken(_: Mapping[str, Any]) -> dict[str, Any]:
        raise HelperUnusable("load_grammars ended the process")

    checked, notes = forms(ScriptedHelper(broken))
    assert check(checked, prompt="a", guided_regex="a") is None
    assert notes == {"guided_regex: not checked: load_grammars ended the process": 1}


def test_a_slow_form_is_refused_or_noted() -> None:
    seconds = {"slow": 0.6, "slowish": 0.1, "fast": 0.001}
    checked, notes = forms(ScriptedHelper(lambda asked: judged(token_sec=seconds[asked["form"]])))
    said = check(checked, prompt="a", guided_regex="slow")
    assert said is not None
    assert said.startswith("guided_regex: cannot be used: it takes 0.6 s to find which tokens may come next")
    assert "(limit 0.5 s)" in said
    assert check(checked, prompt="a", guided_regex="slowish") is None
    assert check(checked, prompt="a", guided_regex="fast") is None
    assert notes == {"guided_regex: slow: it can take the engine more than 20 ms a token": 1}


def test_what_is_not_enforced_within_a_form_is_noted_for_every_item_of_the_kind() -> None:
    checked, notes = forms(ScriptedHelper(lambda _: judged(note="half of it")))
    for at in (0, 1, 1):
        strict = [tool("x")] * at + [tool("a", strict=True)]
        assert check(checked, messages=MESSAGES, tools=strict) is None
    assert notes == {"tools[].function.parameters: half of it": 3}


def test_a_form_that_the_helper_does_not_survive_and_that_too_many_others_did_not() -> None:
    def lost(_: Mapping[str, Any]) -> dict[str, Any]:
        raise HelperLost("took more than 10 s")

    helper = ScriptedHelper(lost)
    checked, _ = forms(helper)
    for at in range(30):
        said = check(checked, prompt="a", guided_regex=f"a{at}")
        assert said == (
            "guided_regex: cannot be used: compiling it and trying some tokens took more than 10 s"
        )
    said = check(checked, prompt="a", guided_regex="another")
    assert said is not None
    assert "was not tried, after 30 others" in said
    assert len(helper.asked) == 30


def test_a_form_of_too_many_bytes_is_not_tried() -> None:
    helper = ScriptedHelper()
    checked, _ = forms(helper, max_form_bytes=100)
    said = check(checked, prompt="a", guided_regex="a" * 200)
    assert said == "guided_regex: has 212 bytes as JSON; at most 100 are compiled"
    assert helper.asked == []
