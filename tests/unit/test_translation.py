"""Items become requests the engine takes, or an error that names the field the engine cannot serve."""

import warnings
from typing import Any

import orjson
import pytest

from batch_pipelines.api.chat import FilteredChatCompletionV2Request
from batch_pipelines.api.completion import FilteredCompletionV2Request
from batch_pipelines.api.items import ItemKind, ValidItem, validate_item
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.v1 import V1Header
from batch_pipelines.translation import (
    CHAT_RULES,
    COMPLETION_RULES,
    V1_RULES,
    Rule,
    TranslationContext,
    translate,
)

MESSAGES = [{"role": "user", "content": "hi"}]
BASES: dict[ItemKind, dict[str, Any]] = {"completion": {"prompt": "hi"}, "chat": {"messages": MESSAGES}}
TOOL = {"type": "function", "function": {"name": "f"}}


def request_of(kind: ItemKind, item: Any, header: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    request = translate(kind, item, served_model="served", defaults=TranslationContext(v1_header=header))
    assert not isinstance(request, ItemError)
    return request.path, orjson.loads(request.body)


def body_of(kind: ItemKind, **fields: Any) -> dict[str, Any]:
    """What is sent beside the model and the prompt or messages."""
    _, body = request_of(kind, {**BASES[kind], **fields})
    return {name: value for name, value in body.items() if name not in ("model", *BASES[kind])}


def refusal_of(kind: ItemKind, **fields: Any) -> ItemError:
    error = translate(kind, {**BASES[kind], **fields}, served_model="served", defaults=TranslationContext())
    assert isinstance(error, ItemError)
    return error


def test_every_field_of_every_kind_has_a_rule() -> None:
    assert set(COMPLETION_RULES) == set(FilteredCompletionV2Request.model_fields)
    assert set(CHAT_RULES) == set(FilteredChatCompletionV2Request.model_fields)
    assert set(V1_RULES) == set(V1Header.model_fields)


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
    ("length_penalty", 1.2, {"length_penalty": 1.2}),
    ("repetition_penalty", 1.1, {"repetition_penalty": 1.1}),
    ("stop_token_ids", [1], {"stop_token_ids": [1]}),
    ("include_stop_str_in_output", True, {"include_stop_str_in_output": True}),
    ("ignore_eos", True, {"ignore_eos": True}),
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
]
SENT_IN_COMPLETIONS: list[tuple[str, Any, dict[str, Any]]] = [
    ("echo", True, {"echo": True}),
    ("logprobs", 3, {"logprobs": 3}),
    ("logprobs", 0, {"logprobs": 0}),
    ("logprobs", True, {"logprobs": 1}),
    ("suffix", " end", {"suffix": " end"}),
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
    ("parallel_tool_calls", False, {"parallel_tool_calls": False}),
]
# field, values that say the same as leaving it out or rightly change nothing
SILENT: list[tuple[str, list[Any]]] = [
    ("best_of", [0, 1]),
    ("early_stopping", [False]),
    ("guided_decoding_backend", ["outlines"]),
    ("guided_whitespace_pattern", [" ?"]),
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
    ("tool_choice", ["auto", "none"]),
    ("function_call", ["auto", "none"]),
]
REFUSED: list[tuple[str, Any]] = [("best_of", 2), ("early_stopping", True), ("early_stopping", "never")]
REFUSED_IN_CHATS: list[tuple[str, Any]] = [
    ("modalities", ["text", "audio"]),
    ("web_search_options", {}),
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
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
    *(("completion", *case) for case in REFUSED),
    *(("chat", *case) for case in REFUSED + REFUSED_IN_CHATS),
]


def test_the_tables_of_this_module_cover_every_field() -> None:
    kinds: dict[ItemKind, dict[str, Rule]] = {"completion": COMPLETION_RULES, "chat": CHAT_RULES}
    for kind, rules in kinds.items():
        cases = [*SENT_CASES, *SILENT_CASES, *REFUSED_CASES]
        covered = {case[1] for case in cases if case[0] == kind}
        covered |= (
            {"top_logprobs"} if kind == "chat" else set()
        )  # needs `logprobs`, so it has a test of its own
        assert covered | set(BASES[kind]) == set(rules)


@pytest.mark.parametrize(("kind", "name", "value", "sent"), SENT_CASES)
def test_set_field_is_sent(kind: ItemKind, name: str, value: Any, sent: dict[str, Any]) -> None:
    assert body_of(kind, **{name: value}) == sent


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
    rules = COMPLETION_RULES if kind == "completion" else CHAT_RULES
    nulls = {name: None for name in rules if name not in BASES[kind]}
    assert body_of(kind, **nulls, custom_id="row-1", extra={"a": 1}) == {}


def test_top_logprobs_are_sent() -> None:
    assert body_of("chat", logprobs=True, top_logprobs=3) == {"logprobs": True, "top_logprobs": 3}


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_best_of_may_equal_n(kind: ItemKind) -> None:
    assert body_of(kind, best_of=3, n=3) == {"n": 3}
    assert refusal_of(kind, best_of=3, n=2).param == "best_of"


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


def test_white_space_goes_with_the_json_schema() -> None:
    for order in (("guided_json", "guided_whitespace_pattern"), ("guided_whitespace_pattern", "guided_json")):
        fields: dict[str, Any] = {"guided_json": {"type": "object"}, "guided_whitespace_pattern": " ?"}
        assert body_of("chat", **{name: fields[name] for name in order}) == {
            "structured_outputs": {"json": {"type": "object"}, "whitespace_pattern": " ?"}
        }


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
    assert body_of("chat", tool_choice="required") == {"tool_choice": "required"}


def test_explicit_generation_prompt_is_left_to_the_sender() -> None:
    sent = body_of("chat", continue_final_message=True, add_generation_prompt=True)
    assert sent == {"continue_final_message": True, "add_generation_prompt": True}
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
