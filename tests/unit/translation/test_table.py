"""Items become requests the engine takes, or an error that names the field the engine cannot serve."""

import re
import warnings
from typing import Any

import orjson
import pytest

from batch_pipelines.api.chat import FilteredChatCompletionV2Request
from batch_pipelines.api.completion import FilteredCompletionV2Request
from batch_pipelines.api.items import ItemKind, ValidItem, validate_item
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.v1 import V1Header
from batch_pipelines.translation.draft import FieldRule
from batch_pipelines.translation.table import CHAT_FIELDS, COMPLETION_FIELDS, V1_FIELDS
from batch_pipelines.translation.translate import translate

MESSAGES = [{"role": "user", "content": "hi"}]
BASES: dict[ItemKind, dict[str, Any]] = {"completion": {"prompt": "hi"}, "chat": {"messages": MESSAGES}}
TOOL = {"type": "function", "function": {"name": "f"}}


def request_of(kind: ItemKind, item: Any, header: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    made = translate(kind, item, served_model="served", v1_header=header)
    assert not isinstance(made, ItemError), made
    return made.request.path, orjson.loads(made.request.body)


def body_of(kind: ItemKind, **fields: Any) -> dict[str, Any]:
    """What is sent beside the model and the prompt or messages."""
    _, body = request_of(kind, {**BASES[kind], **fields})
    return {name: value for name, value in body.items() if name not in ("model", *BASES[kind])}


def refusal_of(kind: ItemKind, **fields: Any) -> ItemError:
    error = translate(kind, {**BASES[kind], **fields}, served_model="served")
    assert isinstance(error, ItemError)
    return error


def test_every_field_of_every_kind_is_in_the_table() -> None:
    assert set(COMPLETION_FIELDS) == set(FilteredCompletionV2Request.model_fields)
    assert set(CHAT_FIELDS) == set(FilteredChatCompletionV2Request.model_fields)
    assert set(V1_FIELDS) == set(V1Header.model_fields)


def test_bare_items_send_nothing_of_our_own() -> None:
    assert request_of("chat", {"messages": MESSAGES}) == (
        "/v1/chat/completions",
        {"model": "served", "messages": MESSAGES},
    )
    assert request_of("completion", {"prompt": [1, 2]}) == (
        "/v1/completions",
        {"model": "served", "prompt": [1, 2]},
    )


# field, value, what is sent
SENT: list[tuple[str, Any, dict[str, Any]]] = [
    ("top_k", -1, {"top_k": -1}),
    ("min_p", 0.1, {"min_p": 0.1}),
    ("use_beam_search", True, {"use_beam_search": True}),
    ("repetition_penalty", 1.1, {"repetition_penalty": 1.1}),
    ("stop_token_ids", [1], {"stop_token_ids": [1]}),
    ("include_stop_str_in_output", True, {"include_stop_str_in_output": True}),
    ("ignore_eos", True, {"ignore_eos": True}),
    ("top_k", 5, {"top_k": 5}),
    ("min_tokens", 2, {"min_tokens": 2}),
    ("skip_special_tokens", False, {"skip_special_tokens": False}),
    ("spaces_between_special_tokens", False, {"spaces_between_special_tokens": False}),
    ("add_special_tokens", True, {"add_special_tokens": True}),
    ("response_format", {"type": "json_object"}, {"response_format": {"type": "json_object"}}),
    ("guided_json", {"type": "object"}, {"structured_outputs": {"json": {"type": "object"}}}),
    ("guided_regex", "a+", {"structured_outputs": {"regex": "a+"}}),
    ("guided_choice", ["a", "b"], {"structured_outputs": {"choice": ["a", "b"]}}),
    ("guided_grammar", 'root ::= "a"', {"structured_outputs": {"grammar": 'root ::= "a"'}}),
    ("frequency_penalty", 0.5, {"frequency_penalty": 0.5}),
    ("presence_penalty", 0.5, {"presence_penalty": 0.5}),
    ("logit_bias", {"5": 1}, {"logit_bias": {"5": 1}}),
    ("max_tokens", 7, {"max_tokens": 7}),
    ("n", 2, {"n": 2}),
    ("seed", 2**63 - 1, {"seed": 2**63 - 1}),
    ("stop", ["a"], {"stop": ["a"]}),
    ("stop", "a", {"stop": "a"}),
    ("temperature", 0, {"temperature": 0}),
    ("top_p", 0.9, {"top_p": 0.9}),
    ("top_p", 0, {"top_k": 1}),
    ("best_of", 3, {"n": 3}),
]
SENT_IN_COMPLETIONS: list[tuple[str, Any, dict[str, Any]]] = [
    ("echo", True, {"echo": True}),
    ("logprobs", 3, {"logprobs": 3}),
    ("logprobs", 0, {"logprobs": 0}),
    ("logprobs", True, {"logprobs": 1}),
]
SENT_IN_CHATS: list[tuple[str, Any, dict[str, Any]]] = [
    ("echo", True, {"echo": True}),
    ("logprobs", True, {"logprobs": True}),
    ("max_completion_tokens", 7, {"max_completion_tokens": 7}),
    ("add_generation_prompt", True, {"add_generation_prompt": True}),
    ("continue_final_message", True, {"continue_final_message": True, "add_generation_prompt": False}),
    ("documents", [{"title": "a", "text": "b"}], {"documents": [{"title": "a", "text": "b"}]}),
    ("chat_template", "{{ messages }}", {"chat_template": "{{ messages }}"}),
    ("chat_template_kwargs", {"a": 1}, {"chat_template_kwargs": {"a": 1}}),
    ("priority", 5, {"priority": 5}),
    ("reasoning_effort", "low", {"reasoning_effort": "low"}),
    ("tools", [TOOL], {"tools": [TOOL]}),
    (
        "functions",
        [{"name": "f"}],
        {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    ),
]
# field, values that say the same as leaving it out or rightly change nothing
SILENT: list[tuple[str, list[Any]]] = [
    ("best_of", [0, 1]),
    ("early_stopping", [False]),
    ("use_beam_search", [False]),
    ("length_penalty", [1]),
    ("model", ["another"]),
    ("stream", [True, False]),
    ("stream_options", [{"include_usage": True}]),
    ("user", ["u"]),
]
SILENT_IN_COMPLETIONS: list[tuple[str, list[Any]]] = [("logprobs", [False]), ("suffix", [""])]
SILENT_IN_CHATS: list[tuple[str, list[Any]]] = [
    ("priority", [0]),
    ("metadata", [{"a": "b"}]),
    ("service_tier", ["flex"]),
    ("modalities", [["text"], []]),
    ("store", [True]),
    ("prediction", [{"type": "content", "content": "a"}]),
    ("tools", [[]]),
    ("logprobs", [False]),
    ("top_logprobs", [0]),
    ("parallel_tool_calls", [False, True]),
    ("tool_choice", ["auto", "none"]),
    ("function_call", ["auto", "none"]),
]
REFUSED: list[tuple[str, Any]] = [
    ("early_stopping", True),
    ("early_stopping", "never"),
    ("length_penalty", 1.2),
    ("repetition_penalty", 0),
    ("max_tokens", 0),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", ["a", "b", "c", "d", "e"]),
    ("guided_whitespace_pattern", " ?"),
    ("guided_decoding_backend", "auto"),
    ("guided_decoding_backend", "another"),
    ("guided_decoding_backend", "outlines"),
    ("seed", -1),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}}),
]
REFUSED_IN_COMPLETIONS: list[tuple[str, Any]] = [("suffix", " end"), ("min_tokens", 17)]
REFUSED_IN_CHATS: list[tuple[str, Any]] = [
    ("modalities", ["text", "audio"]),
    ("web_search_options", {}),
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("function_call", {"name": "f"}),
    ("tool_choice", "required"),
    ("top_logprobs", 2),
    ("max_completion_tokens", 0),
    ("documents", [{"title": "a", "text": None}]),
]
SENT_CASES: list[tuple[ItemKind, str, Any, dict[str, Any]]] = [
    *(("completion", *case) for case in SENT + SENT_IN_COMPLETIONS),
    *(("chat", *case) for case in SENT + SENT_IN_CHATS),
]
SILENT_CASES: list[tuple[ItemKind, str, Any]] = [
    *(("completion", name, value) for name, values in SILENT + SILENT_IN_COMPLETIONS for value in values),
    *(("chat", name, value) for name, values in SILENT + SILENT_IN_CHATS for value in values),
]
REFUSED_CASES: list[tuple[ItemKind, str, Any]] = [
    *(("completion", *case) for case in REFUSED + REFUSED_IN_COMPLETIONS),
    *(("chat", *case) for case in REFUSED + REFUSED_IN_CHATS),
]


def test_the_tables_of_this_module_cover_every_field() -> None:
    kinds: dict[ItemKind, dict[str, FieldRule]] = {"completion": COMPLETION_FIELDS, "chat": CHAT_FIELDS}
    for kind, rules in kinds.items():
        cases = [*SENT_CASES, *SILENT_CASES, *REFUSED_CASES]
        covered = {case[1] for case in cases if case[0] == kind}
        assert covered | set(BASES[kind]) == set(rules)


@pytest.mark.parametrize(("kind", "name", "value", "sent"), SENT_CASES)
def test_set_field_is_sent(kind: ItemKind, name: str, value: Any, sent: dict[str, Any]) -> None:
    body = body_of(kind, **{name: value})
    if name == "best_of":
        del body["logprobs"]  # asked for to rank by
    assert body == sent


@pytest.mark.parametrize(("kind", "name", "value"), SILENT_CASES)
def test_neutral_value_is_not_sent(kind: ItemKind, name: str, value: Any) -> None:
    assert body_of(kind, **{name: value}) == {}


@pytest.mark.parametrize(("kind", "name", "value"), REFUSED_CASES)
def test_what_the_engine_cannot_do_is_refused_by_name(kind: ItemKind, name: str, value: Any) -> None:
    error = refusal_of(kind, **{name: value})
    assert (error.param, error.code, error.type) == (name, 400, "BadRequestError")
    assert error.message.startswith(f"{name}: ")


@pytest.mark.parametrize(("kind", "name", "value"), [*SILENT_CASES, *REFUSED_CASES])
def test_the_cases_are_valid_items(kind: ItemKind, name: str, value: Any) -> None:
    assert isinstance(validate_item(kind, orjson.dumps({**BASES[kind], name: value})), ValidItem)


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_nulls_and_the_sender_own_keys_are_not_sent(kind: ItemKind) -> None:
    rules = COMPLETION_FIELDS if kind == "completion" else CHAT_FIELDS
    nulls = {name: None for name in rules if name not in BASES[kind]}
    assert body_of(kind, **nulls, custom_id="row-1", extra={"a": 1}) == {}


def test_top_logprobs_are_sent() -> None:
    assert body_of("chat", logprobs=True, top_logprobs=3) == {"logprobs": True, "top_logprobs": 3}


@pytest.mark.parametrize("kind", ["completion", "chat"])
@pytest.mark.parametrize("order", [("n", "best_of"), ("best_of", "n")])
def test_best_of_asks_for_more_than_n(kind: ItemKind, order: tuple[str, str]) -> None:
    fields = {"n": 2, "best_of": 5}
    assert body_of(kind, **{name: fields[name] for name in order})["n"] == 5
    assert body_of(kind, best_of=3, n=3) == {"n": 3}
    assert refusal_of(kind, best_of=2, n=3).param == "best_of"


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_without_randomness_one_answer_is_asked_for(kind: ItemKind) -> None:
    assert body_of(kind, n=3, temperature=0) == {"temperature": 0}
    assert body_of(kind, best_of=3, temperature=0) == {"temperature": 0}
    assert body_of(kind, n=3, temperature=0, use_beam_search=True)["n"] == 3


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("stop", ["a"], []),
        ("stop_token_ids", [1], []),
        ("min_tokens", 1, 0),
        ("top_k", 5, -1),
        ("top_p", 0.5, 1),
        ("min_p", 0.5, 0),
        ("repetition_penalty", 1.5, 1.0),
        ("presence_penalty", 0.5, 0),
        ("frequency_penalty", 0.5, 0),
        ("logit_bias", {"1": 1}, {}),
        ("response_format", {"type": "json_object"}, {"type": "text"}),
        ("guided_regex", "a", None),
        ("tools", [TOOL], []),
    ],
)
def test_beam_search_refuses_what_it_would_not_look_at(name: str, value: Any, neutral: Any) -> None:
    error = refusal_of("chat", use_beam_search=True, **{name: value})
    assert error.param == "use_beam_search"
    assert f"`{name}`" in error.message
    assert body_of("chat", use_beam_search=True, **{name: neutral})["use_beam_search"] is True


def test_beam_search_takes_its_own_fields() -> None:
    fields = {"use_beam_search": True, "n": 2, "length_penalty": 0.5, "early_stopping": "never"}
    assert body_of("completion", **fields) == {"use_beam_search": True, "n": 2, "length_penalty": 0.5}
    assert body_of("completion", **fields, best_of=4)["n"] == 4
    assert refusal_of("completion", use_beam_search=True, early_stopping=True).param == "early_stopping"
    assert refusal_of("completion", use_beam_search=True, length_penalty=1e3).param == "length_penalty"


def test_no_tokens_are_an_answer_only_where_the_prompt_is_echoed() -> None:
    assert body_of("completion", max_tokens=0, echo=True) == {"max_tokens": 0, "echo": True}
    assert refusal_of("chat", max_tokens=0, echo=True).param == "max_tokens"


def test_min_tokens_must_leave_room_below_the_limit() -> None:
    assert body_of("completion", min_tokens=16) == {"min_tokens": 16}
    assert body_of("completion", min_tokens=20, max_tokens=20)["min_tokens"] == 20
    error = refusal_of("chat", min_tokens=9, max_tokens=20, max_completion_tokens=8)
    assert (error.param, "more than the 8 tokens" in error.message) == ("min_tokens", True)
    assert body_of("chat", min_tokens=1000) == {"min_tokens": 1000}


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_only_one_field_may_set_the_form(kind: ItemKind) -> None:
    assert refusal_of(kind, guided_regex="a", guided_choice=["a"]).message == (
        "guided_regex: cannot be combined with `guided_choice`; each sets the form of the text"
    )
    assert (
        refusal_of(kind, response_format={"type": "json_object"}, guided_json={}).param == "response_format"
    )
    both = body_of(kind, response_format={"type": "text"}, guided_regex="a")
    assert both["structured_outputs"] == {"regex": "a"}


@pytest.mark.parametrize(
    "order",
    [("guided_json", "guided_whitespace_pattern"), ("guided_whitespace_pattern", "guided_json")],
)
def test_white_space_makes_the_schema_a_regular_expression(order: tuple[str, str]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    fields: dict[str, Any] = {"guided_json": schema, "guided_whitespace_pattern": "_*"}
    body = body_of("chat", **{name: fields[name] for name in order})
    assert list(body) == ["structured_outputs"]
    expression = body["structured_outputs"]["regex"]
    assert re.fullmatch(expression, '{__"a":_1}')
    assert not re.fullmatch(expression, '{ "a": 1}')


def test_a_schema_that_cannot_be_a_regular_expression_is_refused_with_white_space() -> None:
    error = refusal_of("chat", guided_json={"type": "nope"}, guided_whitespace_pattern=" ?")
    assert error.param == "guided_json"
    assert "`type`" in error.message


WIDE = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(20_000)}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 5, "maximum": 9},
        {"type": "number", "multipleOf": 7},
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 10**6},
        {"type": "string", "format": "email", "minLength": 3},
        {"type": "object", "patternProperties": {"a": {"type": "integer"}}},
        {"allOf": [{"type": "object"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {"type": ["integer", "null"]},
        {"enum": [{"a": 1}]},
        {"enum": [1], "minimum": 3},
        WIDE,
        True,
    ],
)
def test_white_space_refuses_schemas_an_expression_would_not_keep_to(schema: Any) -> None:
    error = refusal_of("chat", guided_json=schema, guided_whitespace_pattern=" ?")
    assert error.param == "guided_json"
    assert len(error.message) < 400


def test_white_space_keeps_to_all_it_takes() -> None:
    part = {"type": "array", "items": {"enum": ["x", 1, None]}, "minItems": 1, "maxItems": 2}
    schema = {
        "title": "t",
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 2}, "b": part, "c": {"const": True}},
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }
    body = body_of("chat", guided_json=schema, guided_whitespace_pattern=" ?")
    expression = body["structured_outputs"]["regex"]
    for text, fits in (
        ('{ "a": "zz", "b":["x", 1], "c": true}', True),
        ('{"a":"zzz","b":["x"],"c":true}', False),
        ('{"a":"z","b":["x",1,null],"c":true}', False),
        ('{"a":"z","b":["y"],"c":true}', False),
        ('{"a":"z","b":["x"],"c":false}', False),
    ):
        assert bool(re.fullmatch(expression, text)) is fits, text


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_forced_call_keeps_to_its_schema(choice: Any) -> None:
    lax = {"type": "function", "function": {"name": "g", "strict": False}}
    body = body_of("chat", tools=[TOOL, lax], tool_choice=choice)
    assert [tool["function"]["strict"] for tool in body["tools"]] == [True, False]
    assert "strict" not in body_of("chat", tools=[TOOL], tool_choice="auto")["tools"][0]["function"]
    refusal = refusal_of("chat", tools=[TOOL], tool_choice=choice, guided_regex="a")
    assert (refusal.param, "`guided_regex`" in refusal.message) == ("tool_choice", True)


def test_functions_become_tools_and_their_messages_tool_messages() -> None:
    call = {"name": "f", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "f", "content": "1"},
    ]
    item = {"messages": messages, "functions": [{"name": "f"}], "function_call": {"name": "f"}}
    _, body = request_of("chat", item)
    assert body["tools"][0]["function"]["strict"] is True
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["messages"][1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": call}]
    assert "function_call" not in body["messages"][1]
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "1"}
    assert refusal_of("chat", functions=[{"name": "f"}], tools=[TOOL]).param == "functions"


def test_an_unset_choice_of_functions_is_auto_even_as_null() -> None:
    assert body_of("chat", functions=[{"name": "f"}], function_call=None)["tool_choice"] == "auto"


@pytest.mark.parametrize("name", ["bad name!", "", "x" * 65])
def test_names_of_functions_are_checked(name: str) -> None:
    assert refusal_of("chat", tools=[{**TOOL, "function": {"name": name}}]).param == "tools"
    assert refusal_of("chat", functions=[{"name": name}]).param == "functions"


def test_a_forced_call_of_a_function_without_parameters_has_none() -> None:
    body = body_of("chat", tools=[TOOL], tool_choice="required")
    assert body["tools"][0]["function"]["parameters"]["properties"] == {}


def test_min_tokens_are_not_promised_of_a_text_with_a_form() -> None:
    assert refusal_of("chat", min_tokens=5, guided_choice=["a"]).param == "min_tokens"


def test_parallel_tool_calls_go_with_tools() -> None:
    assert body_of("chat", tools=[TOOL], parallel_tool_calls=False)["parallel_tool_calls"] is False


def test_nulls_of_messages_are_not_sent_but_their_content_is() -> None:
    messages = [
        {"role": "user", "content": "a", "name": None},
        {"role": "assistant", "content": None, "name": None, "audio": None, "tool_calls": [{"id": "1"}]},
    ]
    _, body = request_of("chat", {"messages": messages})
    assert body["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    ]


def test_tool_choice_goes_with_tools() -> None:
    assert body_of("chat", tools=[TOOL], tool_choice="none") == {"tools": [TOOL], "tool_choice": "none"}
    assert body_of("chat", tool_choice="auto") == {}


def test_explicit_generation_prompt_is_left_to_the_sender() -> None:
    error = refusal_of("chat", continue_final_message=True, add_generation_prompt=True)
    assert error.param == "add_generation_prompt"
    assert body_of("chat", continue_final_message=False) == {"continue_final_message": False}


def test_v1_prompt_goes_with_its_header() -> None:
    header = {
        "max_new_tokens": 5,
        "temperature": 0.5,
        "stop_sequences": ["a"],
        "return_token_log_probs": True,
        "presence_penalty": 0.1,
        "frequency_penalty": None,
        "top_k": -1,
        "top_p": 0.9,
        "skip_special_tokens": False,
    }
    assert request_of("v1", "hello", header) == (
        "/v1/completions",
        {
            "model": "served",
            "prompt": "hello",
            "max_tokens": 5,
            "temperature": 0.5,
            "stop": ["a"],
            "logprobs": 0,
            "presence_penalty": 0.1,
            "top_k": -1,
            "top_p": 0.9,
            "skip_special_tokens": False,
        },
    )


def test_v1_without_log_probs_asks_for_none() -> None:
    header = {"max_new_tokens": 5, "temperature": 0, "return_token_log_probs": False}
    _, body = request_of("v1", "hello", header)
    assert body == {"model": "served", "prompt": "hello", "max_tokens": 5, "temperature": 0}


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("kind", "item"), [(kind, {**BASES[kind], name: value}) for kind, name, value, _ in SENT_CASES]
)
def test_the_engine_knows_every_field_we_send_and_takes_its_value(
    kind: ItemKind, item: dict[str, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        model = ChatCompletionRequest if kind == "chat" else CompletionRequest
        _, body = request_of(kind, item)
        assert set(body) <= set(model.model_fields)
        model.model_validate(body)


@pytest.mark.vllm
def test_the_engine_takes_what_clients_send_as_messages() -> None:
    messages = [
        {"role": "developer", "content": "d", "name": None},
        {"role": "system", "content": [{"type": "text", "text": "s"}], "name": None},
        {"role": "user", "content": "u", "name": None},
        {
            "role": "assistant",
            "content": "a",
            "refusal": None,
            "audio": None,
            "tool_calls": None,
            "name": None,
        },
        {"role": "tool", "content": "r", "tool_call_id": "1"},
        {"role": "function", "content": None, "name": "f"},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        _, body = request_of("chat", {"messages": messages})
        assert len(ChatCompletionRequest.model_validate(body).messages) == len(messages)


@pytest.mark.vllm
def test_the_engine_knows_every_field_of_a_v1_request() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        header = {
            "max_new_tokens": 5,
            "temperature": 0.5,
            "stop_sequences": ["a"],
            "return_token_log_probs": True,
        }
        rest = {
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "top_k": 1,
            "top_p": 1,
            "skip_special_tokens": True,
        }
        _, body = request_of("v1", "hello", {**header, **rest})
        assert set(body) <= set(CompletionRequest.model_fields)
        assert CompletionRequest.model_validate(body).logprobs == 0
