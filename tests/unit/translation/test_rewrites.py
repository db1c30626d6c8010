"""An emulated field's answer is what the item asked for."""

import math
from typing import Any

import pytest

from batch_pipelines.translation.rewrites import (
    as_function_call,
    keep_best,
    keep_first,
    mean_log_probability,
    repeat,
    without_prompt_logprobs,
)


def completion(index: int, *log_probs: float | None, **extra: Any) -> dict[str, Any]:
    logprobs = {"tokens": ["t"] * len(log_probs), "token_logprobs": list(log_probs)}
    return {"index": index, "text": f"text {index}", "logprobs": logprobs, **extra}


def chat(index: int, *log_probs: float) -> dict[str, Any]:
    content = [{"token": "t", "logprob": value} for value in log_probs]
    return {"index": index, "message": {"content": f"text {index}"}, "logprobs": {"content": content}}


def texts(body: dict[str, Any]) -> list[str]:
    return [choice["text"] for choice in body["choices"]]


def test_the_likeliest_per_token_are_kept_best_first_and_numbered_anew() -> None:
    choices = [completion(0, -1, -1), completion(1, -0.1), completion(2, -0.5, -0.5, -0.5)]
    body = keep_best({"choices": choices}, wanted=2, of=3, hide_logprobs=False)
    assert texts(body) == ["text 1", "text 2"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-0.1]


def test_each_prompt_keeps_its_own_best() -> None:
    choices = [completion(0, -2), completion(1, -1), completion(2, -0.2), completion(3, -0.1)]
    body = keep_best({"choices": choices}, wanted=1, of=2, hide_logprobs=True)
    assert texts(body) == ["text 1", "text 3"]
    assert [choice["logprobs"] for choice in body["choices"]] == [None, None]


def test_chats_are_ranked_by_their_content() -> None:
    body = keep_best({"choices": [chat(0, -3), chat(1, -1, -1)]}, wanted=1, of=2, hide_logprobs=False)
    assert body["choices"][0]["message"]["content"] == "text 1"


def test_the_echoed_prompt_does_not_count() -> None:
    echoed = completion(0, None, -9.0, -1.0, prompt_logprobs=[None, {}])
    assert mean_log_probability(echoed) == -1.0
    hidden = keep_best({"choices": [echoed, echoed]}, wanted=1, of=2, hide_logprobs=True)
    assert hidden["choices"][0]["prompt_logprobs"] is None


def test_an_answer_without_tokens_ranks_last() -> None:
    assert mean_log_probability(completion(0)) == -math.inf
    assert mean_log_probability(chat(0)) == -math.inf


def test_an_answer_without_log_probabilities_cannot_be_ranked() -> None:
    with pytest.raises(KeyError):
        keep_best({"choices": [{"index": 0, "logprobs": None}] * 2}, wanted=1, of=2, hide_logprobs=True)


def test_an_answer_with_too_few_choices_cannot_be_ranked() -> None:
    with pytest.raises(ValueError, match="3 choices, not 2"):
        keep_best({"choices": [completion(0, -1)] * 3}, wanted=1, of=2, hide_logprobs=True)


def test_sorted_beams_keep_the_first_of_each_prompt() -> None:
    body = keep_first({"choices": [completion(n, -1) for n in range(4)]}, wanted=1, of=2)
    assert texts(body) == ["text 0", "text 2"]


def test_a_repeated_choice_stands_as_often_as_asked() -> None:
    body = repeat({"choices": [completion(0, -1), completion(1, -1)], "usage": {}}, times=2)
    assert texts(body) == ["text 0", "text 0", "text 1", "text 1"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]


def test_log_probabilities_of_the_prompt_are_left_out() -> None:
    assert without_prompt_logprobs({"prompt_logprobs": [1], "id": 2}) == {"prompt_logprobs": None, "id": 2}


def test_a_tool_call_comes_back_as_a_function_call() -> None:
    call = {"name": "f", "arguments": "{}"}
    message = {"content": None, "function_call": None, "tool_calls": [{"id": "1", "function": call}]}
    body = as_function_call({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"content": None, "function_call": call},
            "finish_reason": "function_call",
        }
    ]


def test_an_answer_in_words_stays_as_it_is() -> None:
    choice = {"index": 0, "message": {"content": "no", "tool_calls": []}, "finish_reason": "stop"}
    body = as_function_call({"choices": [choice]})
    assert body["choices"] == [{"index": 0, "message": {"content": "no"}, "finish_reason": "stop"}]
