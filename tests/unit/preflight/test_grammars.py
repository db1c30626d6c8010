"""Forms of text, tried on the engine's own libraries in the helper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.preflight.helper import Helper
from tests.unit.preflight.model_files import VOCABULARY, write_model

pytest.importorskip("llguidance")


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    with Helper(memory_bytes=2**30) as helper:
        yield helper


def judge(helper: Helper, model: Path, kind: str, form: Any, backend: str = "auto") -> dict[str, Any]:
    loads: dict[str, dict[str, Any]] = {
        "load_tokenizer": {"file": str(model / "tokenizer.json"), "eos": "</s>"},
        "load_grammars": {"vocab_size": VOCABULARY, "stop_ids": []},
    }
    request = {"kind": kind, "form": form, "backend": backend}
    return helper.ask("form", request, seconds=30, loads=loads)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("kind", "form", "backend"),
    [
        ("json", SCHEMA, "xgrammar"),
        ("json", {}, "xgrammar"),
        ("json", {"type": "integer", "multipleOf": 3}, "guidance"),
        ("json", {"type": "string", "pattern": "^a+$", "maxLength": 9}, "guidance"),
        ("json_object", None, "xgrammar"),
        ("regex", "[0-9]{4}", "xgrammar"),
        ("regex", "", "xgrammar"),
        ("regex", "(?P<year>[0-9]{4})", "guidance"),
        ("choice", ["yes", "no", "", "no", 'a "quote"\n\x00'], "xgrammar"),
        ("grammar", 'root ::= "a" | "b"', "xgrammar"),
        ("grammar", 'start: "a" | "b"', "xgrammar"),
        ("tool", {"type": "integer", "multipleOf": 3}, "xgrammar"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_forms_that_are_taken(helper: Helper, model: Path, kind: str, form: Any, backend: str) -> None:
    answer = judge(helper, model, kind, form)
    assert (answer["error"], answer["backend"]) == (None, backend)
    assert 0 < answer["token_sec"] < 0.5


@pytest.mark.parametrize(
    ("kind", "form", "said"),
    [
        ("json", {"type": "strin"}, 'Unsupported type "strin"'),
        ("json", {"$ref": "#/$defs/nowhere"}, "Cannot find field $defs in #/$defs/nowhere"),
        ("json", {"enum": []}, "enum array must not be empty"),
        ("json", {"type": "array", "uniqueItems": True}, "`uniqueItems` of an array"),
        ("regex", "(a", "The parenthesis is not closed"),
        ("regex", "(?=a)b", "Lookahead is not supported"),
        ("regex", "a\x00", "has a NUL character"),
        ("choice", [], "is an empty list"),
        ("grammar", " \n", "is empty"),
        ("grammar", "root ::= nothing", 'Rule "nothing" is not defined'),
        ("grammar", "hello world", "expected ':' after rule name"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_forms_that_vllm_refuses(helper: Helper, model: Path, kind: str, form: Any, said: str) -> None:
    error = judge(helper, model, kind, form)["error"]
    assert error is not None
    assert said in error
    assert "/project/" not in error
    assert "\n" not in error


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_schemas_nest_64_levels_at_most(helper: Helper, model: Path) -> None:
    assert judge(helper, model, "json", nested(63))["error"] is None
    for kind in ("json", "tool"):
        assert judge(helper, model, kind, nested(64))["error"] == "nests deeper than 64 levels"


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("json", {"$ref": "#"}),
        ("json", {"$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"}),
        ("regex", r"[^\s\S]"),
        ("grammar", "root ::= root"),
        ("grammar", "start: start"),
    ],
    ids=str,
)
def test_forms_that_pass_vllm_but_that_no_text_has(helper: Helper, model: Path, kind: str, form: Any) -> None:
    assert judge(helper, model, kind, form)["error"] == "no text can keep to it"


def test_forms_that_pass_vllm_but_do_not_compile(helper: Helper, model: Path) -> None:
    error = judge(helper, model, "json", {"type": "string", "minLength": -1})["error"]
    assert error == "xgrammar cannot compile it: Invalid repetition range {-1, -1}"
    error = judge(helper, model, "grammar", "root ::= Token(99999)")["error"]
    assert error.startswith(
        "xgrammar cannot compile it: Token id 99999 in the grammar is out of the vocabulary"
    )


def test_one_library_alone(helper: Helper, model: Path) -> None:
    odd = {"type": "integer", "multipleOf": 3}
    assert judge(helper, model, "json", odd, "guidance")["backend"] == "guidance"
    error = judge(helper, model, "json", odd, "xgrammar")["error"]
    assert error == "xgrammar does not take it: it does not enforce `multipleOf`"
    assert judge(helper, model, "choice", ["a"], "guidance")["backend"] == "guidance"
    error = judge(helper, model, "json", {"if": {}, "then": {}}, "guidance")["error"]
    assert error.startswith("llguidance does not take it: Unimplemented keys")
    error = judge(helper, model, "tool", SCHEMA, "guidance")["error"]
    assert error.startswith("calls of tools are enforced by xgrammar alone")


def test_a_reference_to_another_document_is_noted(helper: Helper, model: Path) -> None:
    answer = judge(helper, model, "json", {"properties": {"a": {"$ref": "https://example.org/a.json"}}})
    assert answer["error"] is None
    assert answer["note"] == "a `$ref` to another document is not followed: anything may be there"


def test_a_model_whose_tokens_are_not_known_is_judged_by_bytes() -> None:
    loads = {"load_grammars": {"vocab_size": 50_000, "stop_ids": [2]}}
    with Helper(memory_bytes=2**30) as helper:
        for backend in ("xgrammar", "guidance"):
            for kind, form in (("json", SCHEMA), ("regex", "[a-z]+")):
                request = {"kind": kind, "form": form, "backend": backend}
                answer = helper.ask("form", request, seconds=30, loads=loads)
                assert (answer["error"], answer["backend"]) == (None, backend)


def test_a_form_that_takes_any_amount_of_memory(tmp_path: Path) -> None:
    from batch_pipelines.preflight.model_preflight import ModelPreflight
    from batch_pipelines.preflight.settings import PreflightSettings

    schema = {"type": "array", "items": {"type": "integer", "multipleOf": 2}, "maxItems": 10**12}
    settings = PreflightSettings(vocab_size=VOCABULARY, memory_bytes=2**28)
    with ModelPreflight(write_model(tmp_path), settings) as preflight:
        error = preflight.check("completion", {"prompt": "a", "guided_json": schema}, 100)
    assert error is not None
    assert error.message == (
        "guided_json: cannot be used: compiling it and trying some tokens ended the process that tried it "
        "(SIGABRT; it may take 0.25 GiB)"
    )
