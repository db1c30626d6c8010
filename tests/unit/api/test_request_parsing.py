"""From JSON to a request: what is accepted, what stays unset, and how every mistake is told."""

import json
from typing import Any

import pytest

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.api.parse import parse_request, parse_v1_header
from batch_pipelines.api.request import CreateBatchCompletionsV2Request, ToolConfig, unknown_model_config_keys

BARE = {"output_data_path": "s3://b/o.json", "model_config": {"model": "m"}}
OK = {**BARE, "input_data_path": "s3://b/i.json"}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}

# What the public Python client sends: every field, nulls included, numbers of CPUs as text.
CLIENT_MODEL_CONFIG: dict[str, Any] = {
    **{name: None for name in BatchCompletionsModelConfig.model_fields},
    "model": "m",
    "trust_remote_code": False,
    "num_shards": 1,
    "labels": {"team": "t"},
}
CLIENT_REQUEST: dict[str, Any] = {
    **{field.alias or name: None for name, field in CreateBatchCompletionsV2Request.model_fields.items()},
    "output_data_path": "s3://b/o.json",
    "labels": {"team": "t"},
    "data_parallelism": 1,
    "max_runtime_sec": 86400,
    "cpus": "4",
    "model_config": CLIENT_MODEL_CONFIG,
}
CLIENT_CHAT_NOISE: dict[str, Any] = {
    "priority": 0,
    "echo": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "add_special_tokens": False,
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "max_tokens": None,
    "stop_token_ids": [],
    "stream": False,
    "model": None,
    "tools": None,
    "audio": None,
    "web_search_options": None,
    "parallel_tool_calls": None,
}
CONTENTS: list[Any] = [
    [],
    [{"prompt": "a", "max_tokens": 16, "echo": False, "n": 1, "stop": None, "response_format": None}],
    [{"prompt": ["a", "b"]}, {"prompt": [1, 2]}, {"prompt": [[1], [2, 3]]}, {"prompt": None}],
    [{**CHAT, **CLIENT_CHAT_NOISE}],
    [
        {
            "messages": [
                {"role": "developer", "content": "d", "name": None},
                {"role": "system", "content": [{"type": "text", "text": "s"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"},
                        },
                        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                        {"type": "video_url", "video_url": {"url": "https://v"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning": "hm",
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "content": "r", "tool_call_id": "1"},
                {
                    "role": "assistant",
                    "function_call": {"name": "f", "arguments": "{}"},
                    "audio": {"id": "a"},
                },
                {"role": "function", "content": None, "name": "f"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"type": "object"}, "strict": True},
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}},
            },
            "early_stopping": "never",
            "stop": ["a", "b"],
            "logit_bias": {"5": -100.0},
            "metadata": {"k": "v"},
            "custom_id": {"any": ["json"]},
        }
    ],
    [{**CHAT, "prompt": "both keys make it a chat"}],
    {
        "prompts": ["a", "b"],
        "max_new_tokens": 4,
        "temperature": 0.0,
        "stop_sequences": None,
        "return_token_log_probs": False,
        "presence_penalty": None,
        "frequency_penalty": 2.0,
        "top_k": -1,
        "top_p": 1.0,
        "skip_special_tokens": True,
    },
]


def errors_of(data: Any) -> list[FieldError]:
    with pytest.raises(RequestInvalid) as caught:
        parse_request(data)
    return caught.value.errors


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
@pytest.mark.parametrize("form", ["mapping", "bytes", "text"])
def test_every_content_shape_comes_back_as_sent(content: Any, form: str) -> None:
    sent = {**CLIENT_REQUEST, "content": content}
    data: Any = {"mapping": sent, "bytes": json.dumps(sent).encode(), "text": json.dumps(sent)}[form]
    assert parse_request(data).model_dump(by_alias=True, exclude_unset=True) == sent


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_stored_request_reads_back_the_same(content: Any) -> None:
    request = parse_request({**BARE, "content": content})
    stored = request.model_dump_json(by_alias=True, exclude_unset=True)
    assert CreateBatchCompletionsV2Request.model_validate_json(stored) == request
    assert parse_request(stored) == request


def test_unset_fields_stay_unset() -> None:
    request = parse_request(OK)
    assert request.model_dump(by_alias=True, exclude_unset=True) == OK
    assert (request.replicas, request.runtime_seconds, request.labels) == (1, 86_400, {})


def test_null_means_unset() -> None:
    request = parse_request(
        {**OK, "data_parallelism": None, "max_runtime_sec": None, "labels": None, "tool_config": None}
    )
    assert (request.replicas, request.runtime_seconds, request.labels, request.tool_config) == (
        1,
        86_400,
        {},
        None,
    )


@pytest.mark.parametrize("value", [4, 0.5, "4", "500m", "32Gi"])
@pytest.mark.parametrize("name", ["cpus", "memory", "storage"])
def test_quantities_keep_their_type(name: str, value: object) -> None:
    kept = getattr(parse_request({**OK, name: value}), name)
    assert kept == value
    assert type(kept) is type(value)


def test_all_errors_are_reported_at_once() -> None:
    errors = errors_of(
        {
            "input_data_path": "i",
            "contnet": [],
            "data_parallelism": 65,
            "labels": {"a/b": 1},
            "cpus": True,
            "gpu_type": "h100",
            "model_config": {"model": "m", "num_shards": 0, "enforce_eager": "yes"},
            "content": [{"prompt": "a", "temperature": 3, "max_tokens": "5"}],
        }
    )
    assert {error.pointer for error in errors} == {
        "/contnet",
        "/data_parallelism",
        "/labels/a~1b",
        "/cpus",
        "/gpu_type",
        "/model_config/num_shards",
        "/model_config/enforce_eager",
        "/content",
        "/content/0/temperature",
        "/content/0/max_tokens",
        "/output_data_path",
    }


def test_errors_read_well() -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_request({**OK, "data_parallelism": 65, "max_runtime_sec": "60"})
    assert str(caught.value) == (
        "the request has 2 errors:\n"
        "  /data_parallelism: must be less than or equal to 64 (got 65)\n"
        '  /max_runtime_sec: must be a whole number (got "60")'
    )


def test_very_many_errors_are_cut_short_in_text_only() -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_request({**BARE, "content": [{"prompt": 1}] * 70})
    assert len(caught.value.errors) == 70
    assert str(caught.value).endswith("\n  and 20 more")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("data_paralelism", "`data_parallelism`"),
        ("dataParallelism", "`data_parallelism`"),
        ("contents", "`content`"),
        ("modelConfig", "`model_config`"),
        ("engine_config", None),
        ("max_model_len", "`model_config.max_model_len`"),
        ("max_modellen", "`model_config.max_model_len`"),
        ("qqq", None),
    ],
)
def test_unknown_field_is_refused_with_the_nearest_name(name: str, hint: str | None) -> None:
    expected = f"unknown field (did you mean {hint}?)" if hint else "unknown field"
    assert errors_of({**OK, name: 1}) == [FieldError(f"/{name}", expected)]


def test_unknown_field_of_a_nested_object_is_refused_with_the_nearest_name() -> None:
    tool = {"name": "code_evaluator", "max_iteration": 3}
    v1 = {"prompts": [], "max_new_tokens": 1, "temperature": 0, "stop_sequence": []}
    assert errors_of({**OK, "tool_config": tool}) == [
        FieldError("/tool_config/max_iteration", "unknown field (did you mean `max_iterations`?)")
    ]
    assert errors_of({**BARE, "content": v1}) == [
        FieldError("/content/stop_sequence", "unknown field (did you mean `stop_sequences`?)")
    ]


def test_unknown_model_config_keys_are_accepted_and_listed() -> None:
    config = {"model": "m", "quantisation": "awq", "labels": {"a": "b"}, "zzz": None}
    request = parse_request({**OK, "model_config": config})
    assert unknown_model_config_keys(request) == ["quantisation (did you mean `quantization`?)", "labels"]
    assert request.engine_config.model_dump(exclude_unset=True) == config


def test_one_source_is_needed() -> None:
    assert errors_of(BARE) == [FieldError("", "give `input_data_path`, or the items themselves as `content`")]
    assert errors_of({**OK, "content": []}) == [
        FieldError("/content", "give either `content` or `input_data_path`, not both")
    ]


def test_mixed_list_names_the_first_item_of_the_other_kind() -> None:
    content = [{"prompt": "a"}, {"prompt": "b"}, CHAT, {"prompt": "c", "n": 0}, CHAT]
    assert errors_of({**BARE, "content": content}) == [
        FieldError(
            "/content/2",
            "is a chat (it has `messages`), but the items before it are completions; all must be of one kind",
        ),
        FieldError("/content/3/n", "must be greater than or equal to 1 (got 0)"),
    ]


def test_item_with_both_keys_is_a_chat_among_completions() -> None:
    (error,) = errors_of({**BARE, "content": [{"prompt": "a"}, {"prompt": "b", **CHAT}]})
    assert error.pointer == "/content/1"
    assert "is a chat" in error.message


def test_item_with_neither_key_says_so() -> None:
    neither = "has neither `prompt` (a completion) nor `messages` (a chat)"
    assert errors_of({**BARE, "content": [{"text": "a"}, CHAT, {}]}) == [
        FieldError("/content/0", neither),
        FieldError("/content/2", neither),
    ]


@pytest.mark.parametrize("item", [7, "prompt", None, []])
def test_item_that_is_no_object_is_refused_in_its_place(item: Any) -> None:
    (error,) = errors_of({**BARE, "content": [CHAT, item]})
    assert error.pointer == "/content/1"
    assert error.message.startswith("must be an object")


def test_only_errors_of_the_message_own_role_are_shown() -> None:
    messages = [
        {"role": "user", "content": 5},
        {"role": "robot", "content": "x"},
        {"content": "x"},
        {"role": "tool", "content": "x"},
        {"role": "user", "content": [{"type": "text"}, {"type": "image_url", "image_url": {}}, "x"]},
    ]
    assert errors_of({**BARE, "content": [{"messages": messages}]}) == [
        FieldError("/content/0/messages/0/content", "must be a string or a list of content parts (got 5)"),
        FieldError(
            "/content/0/messages/1",
            "`role` must be one of 'developer', 'system', 'user', 'assistant', 'tool', 'function' "
            '(got "robot")',
        ),
        FieldError("/content/0/messages/2", "must have a `role`"),
        FieldError("/content/0/messages/3/tool_call_id", "is required"),
        FieldError("/content/0/messages/4/content/0/text", "is required"),
        FieldError("/content/0/messages/4/content/1/image_url/url", "is required"),
        FieldError(
            "/content/0/messages/4/content/2",
            "must be an object with a `type`, such as 'text' or 'image_url' (got \"x\")",
        ),
    ]


def test_bad_json_names_line_and_column() -> None:
    (error,) = errors_of(b'{\n "output_data_path": "o",\n "model_config": nope}')
    assert error.pointer == ""
    assert error.message.startswith("is not valid JSON: ")
    assert "(line 3, column " in error.message


@pytest.mark.parametrize(
    "data", [b"[]", b'"a"', b"null", b"", b"\xff", b'{"a": NaN}', '{"a": "\\ud800"}', {"a": float("nan")}]
)
def test_what_is_no_json_object_is_refused(data: Any) -> None:
    (error,) = errors_of(data)
    assert error.pointer == ""


def test_deep_nesting_is_refused() -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    (error,) = errors_of({**OK, "model_config": {"model": "m", "rope_scaling": {"a": deep}}})
    assert error.message == "is nested deeper than 200 levels"
    (error,) = errors_of(b'{"a":' + b"[" * 100_000)
    assert error.pointer == ""


def test_null_is_refused_for_what_must_be_there() -> None:
    errors = errors_of(
        {**CLIENT_REQUEST, "input_data_path": "i", "output_data_path": None, "model_config": None}
    )
    assert {error.pointer for error in errors} == {"/output_data_path", "/model_config"}


BOUNDS: list[tuple[str, list[Any], list[Any]]] = [
    ("data_parallelism", [1, 64, 2.0, None], [0, 65, 1.5, "2", True]),
    ("max_runtime_sec", [1, 172_800, None], [0, 172_801, -1, "60"]),
    ("gpus", [0, 8, None], [-1, 0.5, "1"]),
    ("nodes_per_worker", [1, 2, None], [0, -1]),
    ("gpu_type", ["nvidia-tesla-t4", "nvidia-hopper-h100-3g40gb", None], ["h100", ""]),
    ("labels", [{}, {"a": "b"}, None], [{"a": 1}, [], {"a": None}]),
    ("priority", ["high", "5", None], [5]),
    ("cpus", [1, 0.5, "2", None], [True, [], {}]),
    ("output_data_path", ["o"], ["", None, 1]),
    ("tool_config", [{"name": "t"}, None], [{}, {"name": "t", "max_iterations": 0}, "t"]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, good, _ in BOUNDS for value in good])
def test_value_within_bounds_is_accepted(name: str, value: Any) -> None:
    parse_request({**OK, name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, _, bad in BOUNDS for value in bad])
def test_value_out_of_bounds_is_refused_by_name(name: str, value: Any) -> None:
    (error,) = errors_of({**OK, name: value})
    assert error.pointer.startswith(f"/{name}")


MODEL_BOUNDS: list[tuple[str, list[Any], list[Any]]] = [
    ("model", ["m"], ["", None]),
    ("num_shards", [1, None], [0]),
    ("max_context_length", [1, None], [0]),
    ("gpu_memory_utilization", [0.5, 1, None], [0, 1.1, "0.9"]),
    ("enforce_eager", [True, None], ["true", 1]),
    ("rope_scaling", [{"type": "linear"}, None], ["x"]),
    ("limit_mm_per_prompt", ['{"image": 2}', None], [2]),
]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, good, _ in MODEL_BOUNDS for value in good]
)
def test_model_setting_within_bounds_is_accepted(name: str, value: Any) -> None:
    parse_request({**OK, "model_config": {"model": "m", name: value}})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, _, bad in MODEL_BOUNDS for value in bad])
def test_model_setting_out_of_bounds_is_refused_by_name(name: str, value: Any) -> None:
    (error,) = errors_of({**OK, "model_config": {"model": "m", name: value}})
    assert error.pointer == f"/model_config/{name}"


def test_tool_config_keeps_what_was_sent() -> None:
    request = parse_request({**OK, "tool_config": {"name": "code_evaluator", "max_iterations": 2}})
    assert request.tool_config == ToolConfig(name="code_evaluator", max_iterations=2)


def test_v1_header_is_checked_like_v1_content() -> None:
    header = parse_v1_header({"max_new_tokens": 5, "temperature": 0.5, "top_k": None})
    assert header.model_dump(exclude_unset=True) == {"max_new_tokens": 5, "temperature": 0.5, "top_k": None}
    with pytest.raises(RequestInvalid) as caught:
        parse_v1_header({"temperature": 2, "max_new_token": 5})
    assert caught.value.errors == [
        FieldError("/max_new_tokens", "is required"),
        FieldError("/temperature", "must be less than or equal to 1 (got 2)"),
        FieldError("/max_new_token", "unknown field (did you mean `max_new_tokens`?)"),
    ]
