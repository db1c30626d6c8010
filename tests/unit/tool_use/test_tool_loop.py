"""A model writes code, it is run, and the model goes on from its output, within the item's limits."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.request import ToolConfig
from batch_pipelines.engines.protocol import EngineReply, EngineRequest
from batch_pipelines.feeding.exchange import Ask
from batch_pipelines.records import build_record
from batch_pipelines.tool_use.execution import RunCode
from batch_pipelines.tool_use.loop import ToolLoopSettings, ToolOutcome, answer_with_tool
from batch_pipelines.tool_use.sandbox import CodeResult, Sandbox
from tests.unit.tool_use.scripted_engine import (
    CALL,
    PATHS,
    ListedReplies,
    ListedResults,
    SmallModel,
    refused,
    said,
)

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "root of 2?"}], "max_tokens": 100}
CODE = "```python\nprint(1)"
CONTEXT_FULL = (
    "This model's maximum context length is 64 tokens. However, your prompt contains 65 input tokens"
)


def outcome_of(
    kind: ItemKind,
    item: Any,
    ask: Ask,
    run: RunCode,
    *,
    body: dict[str, Any] | None = None,
    **settings: Any,
) -> ToolOutcome:
    request = EngineRequest(PATHS[kind], orjson.dumps(body or {"model": "m", **item}))
    return asyncio.run(answer_with_tool(kind, item, request, ToolLoopSettings(**settings), ask, run))


def answer_of(*arguments: Any, **settings: Any) -> dict[str, Any]:
    outcome = outcome_of(*arguments, **settings)
    assert outcome.error is None
    assert outcome.reply is not None
    assert outcome.reply.status == 200
    answer: dict[str, Any] = orjson.loads(outcome.reply.body)
    return answer


def entries(*tokens: str) -> dict[str, Any]:
    return {
        "tokens": list(tokens),
        "token_logprobs": [-0.5] * len(tokens),
        "top_logprobs": None,
        "text_offset": list(range(len(tokens))),
    }


def test_v1_example_with_an_engine_that_writes_past_the_call(sandbox: Sandbox) -> None:
    """The known example: output the model made up is replaced by the real one, and all tokens are counted."""
    made_up = "```python\nimport math\nprint(math.sqrt(2))\n```\n1.414...\n"
    engine = ListedReplies(
        said("v1", made_up, prompt_tokens=10, tokens=28, logprobs=entries(*["a"] * 28)),
        said("v1", "Final Answer: 4\n", prompt_tokens=53, tokens=6, logprobs=entries(*["b"] * 6)),
    )
    body = {"model": "m", "prompt": "root of 2?", "max_tokens": 100, "logprobs": 0}
    outcome = outcome_of("v1", "root of 2?", engine, sandbox.run, body=body, max_iterations=2)
    assert outcome.reply is not None
    record = orjson.loads(build_record("v1", "root of 2?", outcome.reply).data)
    text = "```python\nimport math\nprint(math.sqrt(2))\n```\n1.4142135623730951\n>>>\n"
    assert engine.bodies[1]["prompt"] == "root of 2?" + text
    assert len(record.pop("tokens")) == 34
    assert [run["exit_code"] for run in record.pop("tool_trace")] == [0]
    assert record == {
        "text": text + "Final Answer: 4\n",
        "num_prompt_tokens": 10,
        "num_completion_tokens": 49,
    }


def test_completion_goes_on_from_the_output_and_tells_all_of_it() -> None:
    engine = ListedReplies(
        said("completion", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL, logprobs=entries("x", "y")),
        said("completion", "So: 1.", prompt_tokens=18, tokens=3, logprobs=entries("z")),
    )
    item = {"prompt": "Q", "max_tokens": 50, "stop": ["END"]}
    answer = answer_of("completion", item, engine, ListedResults("1\n"))
    text = "```python\nprint(1)\n```\n1\n>>>\n"
    assert [body["prompt"] for body in engine.bodies] == ["Q", "Q" + text]
    assert [body["stop"] for body in engine.bodies] == [["END", CALL]] * 2
    assert [body["max_tokens"] for body in engine.bodies] == [50, 41 - len("1\n>>>\n")]
    assert answer == {
        "id": "id-18",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "text": text + "So: 1.",
                "logprobs": {
                    "tokens": ["x", "y", "z"],
                    "token_logprobs": [-0.5] * 3,
                    "top_logprobs": None,
                    "text_offset": [0, 1, len(text)],
                },
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 12,
            "total_tokens": 17,
            "tool_tokens": 4,
            "prompt_tokens_details": None,
        },
        "tool_trace": [
            {
                "iteration": 1,
                "code": "print(1)",
                "output": "1\n",
                "exit_code": 0,
                "seconds": 0.25,
                "timed_out": False,
                "truncated": False,
                "retried": 0,
            }
        ],
    }


def test_chat_goes_on_in_a_begun_message() -> None:
    content = {"content": [{"token": "t", "logprob": -1.0, "bytes": None, "top_logprobs": []}]}
    engine = ListedReplies(
        said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL, logprobs=content, reasoning="Hm."),
        said("chat", "So: 1.", prompt_tokens=18, tokens=3, logprobs=content, reasoning=None),
    )
    answer = answer_of("chat", CHAT, engine, ListedResults("1\n"))
    text = "```python\nprint(1)\n```\n1\n>>>\n"
    first, second = engine.bodies
    assert first["messages"] == CHAT["messages"]
    assert "continue_final_message" not in first
    assert second["messages"] == [*CHAT["messages"], {"role": "assistant", "content": text}]
    assert (second["continue_final_message"], second["add_generation_prompt"]) == (True, False)
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text + "So: 1.", "reasoning": "Hm."}
    assert choice["logprobs"]["content"] == content["content"] * 2
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["tool_tokens"] == 4


def test_chat_whose_last_message_is_continued_is_continued_further() -> None:
    item = {
        "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "Well, "}],
        "continue_final_message": True,
    }
    engine = ListedReplies(
        said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("chat", "Done.", prompt_tokens=18, tokens=3),
    )
    answer = answer_of("chat", item, engine, ListedResults("1\n"))
    text = "```python\nprint(1)\n```\n1\n>>>\n"
    assert engine.bodies[1]["messages"] == [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "Well, " + text},
    ]
    assert "max_tokens" not in engine.bodies[1]
    assert answer["choices"][0]["message"]["content"] == text + "Done."


def test_text_without_a_call_is_one_round_and_runs_nothing() -> None:
    engine = ListedReplies(said("chat", "The root is 1.41.", prompt_tokens=5, tokens=7))
    answer = answer_of("chat", CHAT, engine, ListedResults())
    assert answer["choices"][0]["message"]["content"] == "The root is 1.41."
    assert answer["tool_trace"] == []
    assert answer["usage"]["tool_tokens"] == 0


@pytest.mark.parametrize("content", ["", None])
def test_round_that_adds_nothing_ends_the_answer(content: str | None) -> None:
    engine = ListedReplies(
        said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("chat", content, prompt_tokens=18, tokens=1),
    )
    answer = answer_of("chat", CHAT, engine, ListedResults("1\n"))
    assert answer["choices"][0]["message"]["content"] == "```python\nprint(1)\n```\n1\n>>>\n"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_user_s_own_stop_ends_the_answer_inside_a_block() -> None:
    engine = ListedReplies(said("completion", CODE, prompt_tokens=5, tokens=9, stop_reason="\n```"))
    answer = answer_of("completion", {"prompt": "Q", "stop": "\n```"}, engine, ListedResults())
    assert answer["choices"][0]["text"] == CODE
    assert answer["choices"][0]["stop_reason"] == "\n```"


def test_stop_string_that_the_text_keeps_is_not_put_in_twice() -> None:
    engine = ListedReplies(
        said("completion", CODE + CALL, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("completion", "So.", prompt_tokens=18, tokens=3),
    )
    item = {"prompt": "Q", "include_stop_str_in_output": True}
    answer = answer_of("completion", item, engine, ListedResults("1\n"))
    assert answer["choices"][0]["text"] == "```python\nprint(1)\n```\n1\n>>>\nSo."


def test_block_in_another_language_is_written_on_after() -> None:
    engine = ListedReplies(
        said("completion", "```bash\nls", prompt_tokens=5, tokens=4, stop_reason=CALL),
        said("completion", "lists files.", prompt_tokens=9, tokens=3),
    )
    answer = answer_of("completion", {"prompt": "Q", "max_tokens": 20}, engine, ListedResults())
    assert engine.bodies[1]["prompt"] == "Q```bash\nls\n```\n"
    assert engine.bodies[1]["max_tokens"] == 16
    assert answer["choices"][0]["text"] == "```bash\nls\n```\nlists files."
    assert answer["tool_trace"] == []


def test_rounds_are_bounded_and_the_last_output_is_counted() -> None:
    engine = ListedReplies(
        said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("chat", CODE, prompt_tokens=18, tokens=9, stop_reason=CALL),
        said("chat", "?", prompt_tokens=34, tokens=1, finish_reason="length"),
    )
    answer = answer_of("chat", CHAT, engine, ListedResults("1\n", "1\n"), max_iterations=2)
    assert engine.bodies[2]["max_tokens"] == 1
    choice = answer["choices"][0]
    assert choice["message"]["content"] == "```python\nprint(1)\n```\n1\n>>>\n" * 2
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
    assert answer["usage"]["completion_tokens"] == 18
    assert answer["usage"]["tool_tokens"] == (18 - 5 - 9) + (34 - 18 - 9)
    assert [run["iteration"] for run in answer["tool_trace"]] == [1, 2]


def test_last_output_that_the_engine_cannot_count_is_counted_by_its_bytes() -> None:
    engine = ListedReplies(said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL), None)
    answer = answer_of("chat", CHAT, engine, ListedResults("x" * 35), max_iterations=1)
    assert answer["usage"]["tool_tokens"] == 10


def test_code_is_not_run_when_no_token_is_left_to_go_on_with() -> None:
    engine = ListedReplies(said("completion", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL))
    answer = answer_of("completion", {"prompt": "Q", "max_tokens": 9}, engine, ListedResults())
    assert answer["choices"][0]["text"] == CODE + CALL
    assert answer["choices"][0]["finish_reason"] == "length"


def test_completion_without_a_limit_has_the_engine_s_sixteen_tokens() -> None:
    engine = ListedReplies(
        said("completion", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("completion", "a", prompt_tokens=16, tokens=1, finish_reason="length"),
        said("completion", "bcd", prompt_tokens=17, tokens=4, finish_reason="length"),
    )
    answer = answer_of("completion", {"prompt": "Q"}, engine, ListedResults("1\n"))
    assert [body["max_tokens"] for body in engine.bodies] == [16, 1, 4]
    assert answer["choices"][0]["text"].endswith(">>>\nabcd")
    assert answer["usage"]["completion_tokens"] + answer["usage"]["tool_tokens"] == 16


def test_output_that_uses_the_limit_up_ends_the_answer() -> None:
    engine = ListedReplies(
        said("completion", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("completion", "?", prompt_tokens=54, tokens=1, finish_reason="length"),
    )
    answer = answer_of("completion", {"prompt": "Q", "max_tokens": 30}, engine, ListedResults("1\n" * 20))
    assert engine.bodies[1]["max_tokens"] == 1
    assert answer["choices"][0]["text"].endswith("1\n>>>\n")
    assert answer["choices"][0]["finish_reason"] == "length"
    assert (answer["usage"]["completion_tokens"], answer["usage"]["tool_tokens"]) == (9, 40)


def test_limit_of_a_chat_is_the_field_that_goes_first() -> None:
    engine = ListedReplies(said("chat", "a", prompt_tokens=5, tokens=1))
    answer_of("chat", {**CHAT, "max_completion_tokens": 7}, engine, ListedResults())
    assert (engine.bodies[0]["max_completion_tokens"], engine.bodies[0]["max_tokens"]) == (7, 100)


def test_fewest_tokens_are_those_of_the_whole_answer() -> None:
    engine = ListedReplies(
        said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("chat", "a", prompt_tokens=18, tokens=11),
    )
    answer_of("chat", {**CHAT, "min_tokens": 20}, engine, ListedResults("1\n"))
    assert [body["min_tokens"] for body in engine.bodies] == [20, 11]


def test_full_context_ends_the_answer_with_what_there_is() -> None:
    engine = ListedReplies(
        said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL), refused(CONTEXT_FULL)
    )
    answer = answer_of("chat", CHAT, engine, ListedResults("x" * 35))
    choice = answer["choices"][0]
    assert choice["message"]["content"].endswith("x\n>>>\n")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
    assert answer["usage"]["tool_tokens"] == 10


def test_prompt_that_does_not_fit_is_the_item_s_error() -> None:
    engine = ListedReplies(refused(CONTEXT_FULL))
    outcome = outcome_of("chat", CHAT, engine, ListedResults())
    assert outcome.reply == refused(CONTEXT_FULL)


@pytest.mark.parametrize("error", [refused("no such thing"), refused("out of memory", 500)])
def test_engine_s_error_in_a_later_round_is_the_item_s(error: EngineReply) -> None:
    engine = ListedReplies(said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL), error)
    assert outcome_of("chat", CHAT, engine, ListedResults("1\n")) == ToolOutcome(error)


@pytest.mark.parametrize("rounds", [0, 1])
def test_request_that_kills_engines_leaves_no_reply(rounds: int) -> None:
    replies = [said("chat", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL)] * rounds
    engine = ListedReplies(*replies, None)
    assert outcome_of("chat", CHAT, engine, ListedResults("1\n")) == ToolOutcome(None)


def test_item_without_one_text_is_refused_before_anything_is_asked() -> None:
    engine = ListedReplies()
    outcome = outcome_of("chat", {**CHAT, "n": 2}, engine, ListedResults())
    assert outcome.reply is None
    assert outcome.error is not None
    assert outcome.error.param == "n"
    assert engine.bodies == []


def test_code_that_fails_is_told_and_the_model_goes_on() -> None:
    failed = CodeResult("Traceback (most recent call last):\nZeroDivisionError: division by zero\n", 1, 0.1)
    engine = ListedReplies(
        said("completion", CODE, prompt_tokens=5, tokens=9, stop_reason=CALL),
        said("completion", "Oh.", prompt_tokens=30, tokens=2),
    )
    answer = answer_of("completion", {"prompt": "Q", "max_tokens": 90}, engine, ListedResults(failed))
    assert "ZeroDivisionError: division by zero\n>>>\nOh." in answer["choices"][0]["text"]
    assert answer["tool_trace"][0]["exit_code"] == 1


def test_code_that_ran_well_is_at_hand_for_later_code(sandbox: Sandbox) -> None:
    turns = ["```python\nx = 20\n```\n", "```python\n1/0\n```\n", "```python\nprint(x + 1)\n```\n", "Done."]
    answer = answer_of("completion", {"prompt": "Q", "max_tokens": 2000}, SmallModel("Q", turns), sandbox.run)
    assert [(run["exit_code"], run["retried"]) for run in answer["tool_trace"]] == [(0, 0), (1, 0), (0, 1)]
    assert answer["choices"][0]["text"].endswith("21\n>>>\nDone.")


def test_extra_keys_and_the_trace_lie_side_by_side_in_the_record() -> None:
    engine = ListedReplies(said("chat", "Hello.", prompt_tokens=5, tokens=2))
    item = {**CHAT, "custom_id": "row 7"}
    outcome = outcome_of("chat", item, engine, ListedResults())
    assert outcome.reply is not None
    record = build_record("chat", item, outcome.reply)
    body = orjson.loads(record.data)
    assert (body["custom_id"], body["tool_trace"]) == ("row 7", [])
    assert (record.prompt_tokens, record.completion_tokens) == (5, 2)


def test_settings_have_the_contract_s_defaults() -> None:
    assert ToolLoopSettings.from_config(ToolConfig(name="code_evaluator")) == ToolLoopSettings(10, 60, True)
    config = ToolConfig(
        name="code_evaluator", max_iterations=2, execution_timeout_seconds=5, should_retry_on_error=False
    )
    assert ToolLoopSettings.from_config(config) == ToolLoopSettings(2, 5, False)


TURNS = [
    "I count.\n```python\nprint(1)\n```\n",
    "```bash\nls\n```\nThen:\n```python\n2\n```\n",
    "The answer is 12.",
]


@given(
    limit=st.integers(1, 220),
    outputs=st.tuples(st.text("1\n", max_size=60), st.text("2\n", max_size=60)),
    include_stop=st.booleans(),
)
def test_limit_is_kept_to_the_token_wherever_it_falls(
    limit: int, outputs: tuple[str, str], include_stop: bool
) -> None:
    """With a token a character, the answer is the unlimited one cut at the limit.

    Only a tool's output is not cut: it may go beyond, and then the answer ends with it.
    """
    blocks = [output.removesuffix("\n") + "\n>>>\n" for output in outputs]
    whole = TURNS[0] + blocks[0] + TURNS[1] + blocks[1] + TURNS[2]
    engine = SmallModel("Prompt: ", TURNS, include_stop=include_stop)
    item = {"prompt": "Prompt: ", "max_tokens": limit}
    answer = answer_of("completion", item, engine, ListedResults(*outputs))
    text, usage = answer["choices"][0]["text"], answer["usage"]
    assert whole.startswith(text)
    assert len(text) == usage["completion_tokens"] + usage["tool_tokens"]
    assert usage["prompt_tokens"] == len("Prompt: ")
    if len(text) > limit:
        assert text.endswith("\n>>>\n")
        assert len(text) - len(answer["tool_trace"][-1]["output"].removesuffix("\n")) - 5 < limit
    else:
        assert len(text) == min(limit, len(whole))
    assert answer["choices"][0]["finish_reason"] == ("stop" if limit > len(whole) else "length")
