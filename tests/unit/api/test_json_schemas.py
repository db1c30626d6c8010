"""The printed schemas are valid and agree with the models about what is valid."""

from typing import Any, get_args

import jsonschema
import pytest

from batch_pipelines.api.schema import DIALECT, SchemaName, json_schema

OK = {"output_data_path": "s3://b/o.json", "model_config": {"model": "m"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


@pytest.mark.parametrize("name", get_args(SchemaName))
def test_schema_is_valid_draft_2020_12(name: SchemaName) -> None:
    schema = json_schema(name)
    assert schema["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", get_args(SchemaName))
def test_schema_offers_no_defaults(name: SchemaName) -> None:
    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(key for child in value.values() for key in keys(child))}
        return {key for child in value for key in keys(child)} if isinstance(value, list) else set()

    assert "default" not in keys(json_schema(name))


@pytest.mark.parametrize(
    "content",
    [
        [],
        [{"prompt": "a"}],
        [{"prompt": [1, 2], "logprobs": True}],
        [{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "id": 7}],
        [{"messages": [{"role": "assistant", "content": None}], "prompt": "both"}],
        {"prompts": ["a"], "max_new_tokens": 1, "temperature": 0},
    ],
)
def test_good_content_passes_the_schema(content: Any) -> None:
    jsonschema.validate({**OK, "content": content, "labels": None}, json_schema("request"))


@pytest.mark.parametrize(
    "extra",
    [
        {"contents": []},
        {"data_parallelism": 65},
        {"max_runtime_sec": 0},
        {"gpu_type": "h100"},
        {"content": [{"prompt": "a", "temperature": 2.5}]},
        {"content": [{"messages": []}]},
        {"content": {"prompts": ["a"]}},
        {"model_config": {}},
    ],
)
def test_bad_request_fails_the_schema(extra: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**OK, **extra}, json_schema("request"))


def test_output_schema_takes_every_kind_of_record_and_echoed_keys() -> None:
    chat = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": USAGE,
        "custom_id": "a",
    }
    completion = {
        "id": "c",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "text": "hi"}],
        "usage": USAGE,
    }
    v1 = {
        "text": "hi",
        "num_prompt_tokens": 1,
        "num_completion_tokens": 1,
        "tokens": [{"token": "hi", "log_prob": -1}],
    }
    error = {
        "error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400},
        "custom_id": "a",
    }
    jsonschema.validate([chat, completion, v1, {**v1, "tokens": None}, error], json_schema("output"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"text": "hi"}], json_schema("output"))
