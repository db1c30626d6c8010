"""Whatever the engine replies, an item gets one line of strict JSON with nothing of its own lost."""

import json
from typing import Any

import orjson
import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ErrorRecord, ItemError
from batch_pipelines.engines.protocol import EngineReply
from batch_pipelines.records import Record, build_record, error_record

CHAT_ITEM = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
CHAT_REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hé"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
COMPLETION_REPLY: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": " Paris.", "logprobs": None, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
ERROR_REPLY = {
    "error": {
        "message": "max_tokens is too long",
        "type": "BadRequestError",
        "param": "max_tokens",
        "code": 400,
    }
}


def record_of(body: Any, item: Any = CHAT_ITEM, kind: ItemKind = "chat", status: int = 200) -> Record:
    record = build_record(
        kind, item, EngineReply(status, body if isinstance(body, bytes) else orjson.dumps(body))
    )
    assert b"\n" not in record.data
    assert record.failed is (record.error is not None)
    orjson.loads(record.data)  # strict, unlike the json module
    return record


def test_answer_is_the_engine_own_object() -> None:
    record = record_of(CHAT_REPLY)
    assert orjson.loads(record.data) == CHAT_REPLY
    assert (record.failed, record.error, record.prompt_tokens, record.completion_tokens) == (
        False,
        None,
        3,
        2,
    )


def test_extra_keys_of_the_item_are_echoed() -> None:
    record = record_of(CHAT_REPLY, {**CHAT_ITEM, "custom_id": "row-7", "note": None, "tags": {"a": [1]}})
    assert orjson.loads(record.data) == {**CHAT_REPLY, "custom_id": "row-7", "note": None, "tags": {"a": [1]}}


def test_extra_key_of_an_engine_name_is_echoed_inside_item_for_answers_and_errors_alike() -> None:
    item = {**CHAT_ITEM, "id": "row-7", "usage": "mine", "item": 3, "custom_id": 1}
    echoed = {"custom_id": 1, "item": {"id": "row-7", "usage": "mine", "item": 3}}
    assert orjson.loads(record_of(CHAT_REPLY, item).data) == {**CHAT_REPLY, **echoed}
    assert orjson.loads(record_of(ERROR_REPLY, item, status=400).data) == {**ERROR_REPLY, **echoed}


def test_extra_key_the_engine_answers_with_too_is_echoed_inside_item() -> None:
    record = record_of({**CHAT_REPLY, "metrics": 1}, {**CHAT_ITEM, "metrics": 2})
    assert orjson.loads(record.data) == {**CHAT_REPLY, "metrics": 1, "item": {"metrics": 2}}


def test_reply_over_several_lines_becomes_one_line() -> None:
    assert orjson.loads(record_of(json.dumps(CHAT_REPLY, indent=2).encode()).data) == CHAT_REPLY


def test_v1_answer_is_a_completion_output() -> None:
    record = record_of(COMPLETION_REPLY, "The capital of France is", "v1")
    assert orjson.loads(record.data) == {
        "text": " Paris.",
        "num_prompt_tokens": 3,
        "num_completion_tokens": 2,
        "tokens": None,
    }
    assert (record.prompt_tokens, record.completion_tokens) == (3, 2)


def test_v1_tokens_are_one_entry_each() -> None:
    logprobs = {
        "tokens": [" Paris", "."],
        "token_logprobs": [-0.5, None],
        "top_logprobs": [{" Paris": -0.5}, None],
        "text_offset": [0, 6],
    }
    choice = {**COMPLETION_REPLY["choices"][0], "logprobs": logprobs}
    record = record_of({**COMPLETION_REPLY, "choices": [choice]}, "The capital", "v1")
    assert orjson.loads(record.data)["tokens"] == [
        {"token": " Paris", "log_prob": -0.5},
        {"token": ".", "log_prob": None},
    ]


def test_engine_error_becomes_an_error_record() -> None:
    record = record_of(ERROR_REPLY, {**CHAT_ITEM, "custom_id": "row-7"}, status=400)
    assert orjson.loads(record.data) == {**ERROR_REPLY, "custom_id": "row-7"}
    assert record.error == ItemError(
        message="max_tokens is too long", type="BadRequestError", param="max_tokens", code=400
    )
    assert (record.prompt_tokens, record.completion_tokens) == (0, 0)


def test_engine_error_of_a_v1_prompt_becomes_an_error_record() -> None:
    record = record_of(ERROR_REPLY, "a prompt", "v1", status=400)
    assert orjson.loads(record.data)["error"]["param"] == "max_new_tokens"


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (500, b"Internal Server Error", "InternalServerError", 500),
        (404, b'{"detail": "Not Found"}', "BadRequestError", 404),
        (400, b'{"error": "text"}', "BadRequestError", 400),
        (503, b"", "InternalServerError", 503),
        (200, b"", "InternalServerError", 500),
        (200, b"<html>", "InternalServerError", 500),
        (200, b"[1]", "InternalServerError", 500),
        (200, b"{}", "InternalServerError", 500),
        (200, b'{"choices": []}', "InternalServerError", 500),
        (200, b"[" * 100_000, "InternalServerError", 500),
        (200, b"\xff\xfe", "InternalServerError", 500),
        (302, b"", "InternalServerError", 500),
    ],
)
@pytest.mark.parametrize("item_kind", ["chat", "completion", "v1"])
def test_reply_without_an_answer_becomes_an_error_record(
    status: int, body: bytes, kind: str, code: int, item_kind: ItemKind
) -> None:
    item = "a prompt" if item_kind == "v1" else CHAT_ITEM
    record = record_of(body, item, item_kind, status)
    assert record.error is not None
    assert (record.error.type, record.error.code) == (kind, code)
    assert len(record.error.message) < 700
    assert ErrorRecord.model_validate_json(record.data).error == record.error


def test_answer_the_v1_form_cannot_hold_becomes_an_error_record() -> None:
    record = record_of({**COMPLETION_REPLY, "choices": [{"index": 0}]}, "a prompt", "v1")
    assert record.error is not None
    assert record.error.code == 500


def test_engine_error_with_missing_parts_is_made_whole() -> None:
    record = record_of({"error": {"message": None, "param": 5, "code": "bad"}}, status=422)
    assert record.error == ItemError(
        message="the engine answered with status 422", type="BadRequestError", param=None, code=422
    )


def test_what_strict_json_cannot_hold_is_replaced() -> None:
    body = (
        b'{"choices": [{"a": NaN, "b": [Infinity, -Infinity, 1e999], "c": "x\\ud800y", "d": "\\ud83d\\ude00",'
        b' "\\udfff": 1, "e": 99999999999999999999999, "f": 1'
        + b"0" * 400
        + b'}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}'
    )
    record = record_of(body)
    assert orjson.loads(record.data)["choices"] == [
        {
            "a": None,
            "b": [None, None, None],
            "c": "x�y",
            "d": "\N{GRINNING FACE}",
            "�": 1,
            "e": 1e23,
            "f": None,
        }
    ]
    assert (record.prompt_tokens, record.completion_tokens) == (1, 2)


def test_broken_utf_8_is_replaced() -> None:
    record = record_of(b'{"choices": [{"text": "a\xffb"}]}', {"prompt": "a"}, "completion")
    assert orjson.loads(record.data)["choices"] == [{"text": "a�b"}]


def test_v1_log_probs_that_are_no_numbers_are_null() -> None:
    body = b'{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-Infinity]}}]}'
    assert orjson.loads(record_of(body, "p", "v1").data)["tokens"] == [{"token": "a", "log_prob": None}]


def test_missing_usage_counts_as_nothing() -> None:
    for usage in ({}, {"usage": None}, {"usage": {"prompt_tokens": None}}):
        record = record_of({"choices": [{"text": "a"}], **usage}, {"prompt": "a"}, "completion")
        assert (record.prompt_tokens, record.completion_tokens) == (0, 0)


def test_error_record_echoes_and_stays_strict_json() -> None:
    error = ItemError(message="bad \ud800", type="BadRequestError", param=None, code=400)
    record = error_record({"custom_id": 1, "id": 2}, error)
    assert orjson.loads(record.data) == {
        "error": {"message": "bad �", "type": "BadRequestError", "param": None, "code": 400},
        "custom_id": 1,
        "item": {"id": 2},
    }
    assert record.failed
