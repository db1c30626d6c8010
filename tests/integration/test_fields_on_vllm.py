"""Every field does what it says, told by what the real engine answers."""

import math
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import orjson
import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.models.smollm2 import NAME, ensure_smollm2
from batch_pipelines.settings import Settings
from batch_pipelines.tool_use.sandbox_check import open_sandbox, sandbox_available
from tests.support.answers import Answers, engine_answers

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NEEDS = EngineNeeds(
    priorities=True,
    chat_templates=True,
    tools=True,
    seeds=True,
    log_probs=40,
    structured_backend="xgrammar",
)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
WEATHER = "What is the weather in Paris?"
A_CALL = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "(Paris|Rome)"\}\}\n</tool_call>'
JAPAN = "The capital of Japan is"
ONES = "one one one one one one one one"
RAW = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def engine() -> Iterator[Answers]:
    """One engine for all tests, set up for everything that items may need of it."""
    older: dict[str, Any] = {"max_context_length": 768, "num_shards": 1, "cache_dtype": "bfloat16"}
    model = ensure_smollm2(Settings().models)
    with engine_answers(model, NAME, NEEDS, response_role="clerk", **older) as answers:
        yield answers


def texts(record: dict[str, Any]) -> list[str]:
    return [
        choice["text"] if "text" in choice else choice["message"]["content"] for choice in record["choices"]
    ]


def text(record: dict[str, Any]) -> str:
    (only,) = texts(record)
    return only


def token_count(record: dict[str, Any]) -> int:
    count = record["usage"]["completion_tokens"]
    assert isinstance(count, int)
    return count


# The form of the text


def test_guided_regex(engine: Answers) -> None:
    for record in (
        engine.chat("Make up a code.", guided_regex=r"[A-Z]{3}-[0-9]{2}", max_tokens=20),
        engine.completion("A code: ", guided_regex=r"[A-Z]{3}-[0-9]{2}", max_tokens=20),
    ):
        assert re.fullmatch(r"[A-Z]{3}-[0-9]{2}", text(record))


def test_guided_choice(engine: Answers) -> None:
    assert text(engine.chat("Is water wet?", guided_choice=["certainly", "hardly"])) in (
        "certainly",
        "hardly",
    )


def test_guided_grammar(engine: Answers) -> None:
    grammar = 'root ::= "the " colour " sea"\ncolour ::= "red" | "blue"'
    assert text(engine.chat("Name a sea.", guided_grammar=grammar)) in ("the red sea", "the blue sea")


def test_guided_json(engine: Answers) -> None:
    record = engine.chat("Where is the Colosseum?", guided_json=SCHEMA, max_tokens=100)
    jsonschema.validate(orjson.loads(text(record)), SCHEMA)


def test_guided_json_with_its_white_space(engine: Answers) -> None:
    fields: dict[str, Any] = {"guided_json": SCHEMA, "guided_whitespace_pattern": " {2}", "max_tokens": 40}
    answer = text(engine.chat("Where is the Colosseum?", **fields))
    assert re.fullmatch(r'\{  "city"  :  "(Paris|Rome)"  \}', answer)


@pytest.mark.parametrize("strict", [None, True, False])
def test_response_format_of_a_schema_is_kept_to_strict_or_not(engine: Answers, strict: bool | None) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": strict}}
    record = engine.chat("Where is the Colosseum?", response_format=form, max_tokens=100)
    jsonschema.validate(orjson.loads(text(record)), SCHEMA)


def test_response_format_of_any_object(engine: Answers) -> None:
    prompt = 'Repeat exactly: {"a": 1}'
    record = engine.chat(prompt, response_format={"type": "json_object"}, max_tokens=100)
    if record["choices"][0]["finish_reason"] == "stop":
        assert isinstance(orjson.loads(text(record)), dict)
    else:
        assert text(record).startswith("{")


def test_response_format_of_text_is_free(engine: Answers) -> None:
    assert text(engine.chat(response_format={"type": "text"})) == text(engine.chat())


# How many answers, and which


def test_n_answers(engine: Answers) -> None:
    record = engine.completion(n=3, temperature=1, seed=7)
    assert [choice["index"] for choice in record["choices"]] == [0, 1, 2]
    assert len(set(texts(record))) > 1


def test_n_answers_without_randomness_are_the_same_one(engine: Answers) -> None:
    record = engine.completion(n=3)
    assert texts(record) == [text(engine.completion())] * 3
    assert token_count(record) == 8


def mean(choice: dict[str, Any]) -> float:
    logprobs = choice["logprobs"]
    values = (
        [entry["logprob"] for entry in logprobs["content"]]
        if "content" in logprobs
        else logprobs["token_logprobs"]
    )
    return math.fsum(values) / len(values)


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_best_of_returns_the_likeliest_of_more(engine: Answers, kind: str) -> None:
    ask = engine.chat if kind == "chat" else engine.completion
    fields: dict[str, Any] = {"n": 2, "best_of": 6, "temperature": 1.5, "max_tokens": 6}
    record = ask(**fields)
    (reply,) = engine.replies
    best = sorted(reply["choices"], key=mean, reverse=True)
    assert len(set(texts(reply))) == 6
    assert texts(record) == texts(reply | {"choices": best[:2]})
    assert [choice["logprobs"] for choice in record["choices"]] == [None, None]
    assert token_count(record) == token_count(reply) == 36
    shown = ask(**fields, logprobs=True if kind == "chat" else 0)
    assert mean(shown["choices"][0]) >= mean(shown["choices"][1])


def test_best_of_ranks_each_prompt_by_itself(engine: Answers) -> None:
    record = engine.completion([JAPAN, "One, two,"], n=2, best_of=4, temperature=1.2, seed=3, echo=True)
    assert [choice["text"].startswith(JAPAN) for choice in record["choices"]] == [True, True, False, False]
    assert [choice["prompt_logprobs"] for choice in record["choices"]] == [None] * 4


def test_beam_search_gives_the_best_beams_first(engine: Answers) -> None:
    record = engine.completion(use_beam_search=True, n=3, max_tokens=5, ignore_eos=True, logprobs=0)
    sums = [math.fsum(choice["logprobs"]["token_logprobs"]) for choice in record["choices"]]
    assert sums == sorted(sums, reverse=True)
    assert len(set(texts(record))) == 3
    greedy = engine.completion(max_tokens=5, ignore_eos=True, logprobs=0)["choices"][0]
    assert sums[0] >= math.fsum(greedy["logprobs"]["token_logprobs"]) - 1e-3


def test_best_of_is_the_width_of_a_beam_search(engine: Answers) -> None:
    wide = engine.completion(use_beam_search=True, n=12, max_tokens=4)
    record = engine.completion(use_beam_search=True, n=2, best_of=12, max_tokens=4)
    assert texts(record) == texts(wide)[:2]


def test_length_penalty_decides_between_short_and_long_beams(engine: Answers) -> None:
    def length(penalty: float) -> int:
        fields: dict[str, Any] = {
            "use_beam_search": True,
            "n": 4,
            "max_tokens": 12,
            "early_stopping": "never",
        }
        first = engine.chat(length_penalty=penalty, logprobs=True, **fields)["choices"][0]
        return len(first["logprobs"]["content"])

    assert length(-20) < length(20)


# Sampling


def test_the_likeliest_token_alone_however_it_is_said(engine: Answers) -> None:
    greedy = text(engine.completion())
    assert "Tokyo" in greedy
    for fields in ({"top_k": 1}, {"top_p": 0}, {"top_p": 1e-6}, {"min_p": 1}):
        assert text(engine.completion(temperature=1.8, seed=5, **fields)) == greedy


def test_temperature_and_seed(engine: Answers) -> None:
    fields: dict[str, Any] = {"temperature": 1.5, "max_tokens": 8}
    engine.completion(**fields)  # so that all that follow find the prompt cached
    first, second, third = (text(engine.completion(seed=seed, **fields)) for seed in (1, 1, 2))
    assert first == second != third


def test_many_long_seeded_prompts_do_not_harm_the_engine(engine: Answers) -> None:
    before = engine.server.pid
    items = [{"prompt": [5 + n] * 600, "seed": n, "temperature": 1, "max_tokens": 2} for n in range(12)]
    assert [record.get("error") for record in engine.records("completion", items)] == [None] * 12
    assert engine.server.pid == before is not None


def test_penalties_on_what_was_said_before(engine: Answers) -> None:
    plain = text(engine.completion(ONES, max_tokens=16)).count("many")
    assert plain > 3  # "-to-many-to-many", and so on
    for fields in ({"repetition_penalty": 2.0}, {"frequency_penalty": 2.0}, {"presence_penalty": 2.0}):
        assert text(engine.completion(ONES, max_tokens=16, **fields)).count("many") < plain


def test_logit_bias_forces_and_forbids(engine: Answers) -> None:
    tokens = token_ids(" Tokyo")
    assert "Tokyo" not in text(engine.completion(logit_bias={str(tokens[0]): -100}, max_tokens=1))
    forced = engine.completion("Once upon", logit_bias={str(tokens[0]): 100}, max_tokens=3)
    assert text(forced) == " Tokyo Tokyo Tokyo"


def token_ids(string: str) -> list[int]:
    """The ids of a text's tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(ensure_smollm2(Settings().models)))
    ids = tokenizer.encode(string, add_special_tokens=False)
    assert all(isinstance(each, int) for each in ids)
    return list(ids)


# Where the text ends


def test_stop_strings(engine: Answers) -> None:
    counting = "one, two, three, four, five,"
    whole = text(engine.completion(counting, max_tokens=12))
    assert "seven" in whole
    cut = engine.completion(counting, max_tokens=12, stop=["seven", "nothing"])
    assert text(cut) == whole[: whole.index("seven")]
    assert cut["choices"][0]["finish_reason"] == "stop"
    kept = engine.completion(counting, max_tokens=12, stop="seven", include_stop_str_in_output=True)
    assert text(kept) == whole[: whole.index("seven") + len("seven")]


def test_stop_token_ids(engine: Answers) -> None:
    (token,) = token_ids(" Tokyo")
    record = engine.completion(stop_token_ids=[token])
    assert text(record) == ""
    assert record["choices"][0]["stop_reason"] == token


def test_min_tokens_and_ignore_eos_go_past_the_end(engine: Answers) -> None:
    short = engine.chat(max_tokens=60)
    assert short["choices"][0]["finish_reason"] == "stop"
    least = token_count(short) + 10
    assert token_count(engine.chat(max_tokens=60, min_tokens=least)) >= least
    assert token_count(engine.chat(max_tokens=60, ignore_eos=True)) == 60


def test_max_completion_tokens_go_before_max_tokens(engine: Answers) -> None:
    assert token_count(engine.chat(max_tokens=9, max_completion_tokens=4, ignore_eos=True)) == 4
    assert token_count(engine.chat(max_tokens=9, ignore_eos=True)) == 9


def test_special_tokens_are_shown_when_asked(engine: Answers) -> None:
    fields: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "spaces_between_special_tokens": False}
    assert "<|im_end|>" not in text(engine.chat(**fields))
    assert "<|im_end|>" in text(engine.chat(skip_special_tokens=False, **fields))


# The prompt


def test_prompts_in_all_their_forms(engine: Answers) -> None:
    ids = token_ids(JAPAN)
    expected = text(engine.completion(JAPAN))
    assert text(engine.completion(ids)) == expected
    assert texts(engine.completion([JAPAN, JAPAN])) == [expected, expected]
    record = engine.completion([ids, ids], add_special_tokens=False)
    assert texts(record) == [expected, expected]
    assert record["usage"]["prompt_tokens"] == 2 * len(ids)
    assert text(engine.completion(JAPAN, echo=True)) == JAPAN + expected
    assert text(engine.completion(JAPAN, echo=True, max_tokens=0)) == JAPAN


def test_messages_of_every_role_and_of_parts(engine: Answers) -> None:
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of Japan?"}]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts, "name": None},
    ]
    assert "Tokyo" in text(engine.chat(messages=messages))
    call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    told = [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "get_weather", "content": JAPAN},
    ]
    shown = "{% for message in messages if message.role == 'tool' %}{{ message.content }}{% endfor %}"
    record = engine.chat(messages=told, chat_template=shown, max_tokens=8)
    assert text(record) == text(engine.completion(JAPAN))


def test_continue_final_message(engine: Answers) -> None:
    messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": JAPAN}]
    record = engine.chat(messages=messages, continue_final_message=True)
    assert text(record).lstrip().startswith("Tokyo")
    assert record["choices"][0]["message"]["role"] == "assistant"
    echoed = engine.chat(messages=messages, continue_final_message=True, echo=True)
    assert text(echoed) == JAPAN + text(record)


def test_response_role_is_the_jobs(engine: Answers) -> None:
    assert engine.chat()["choices"][0]["message"]["role"] == "clerk"


def test_the_context_of_the_older_name_holds(engine: Answers) -> None:
    assert token_count(engine.completion([5] * 767, max_tokens=1)) == 1
    record = engine.record("completion", {"prompt": [5] * 768})
    assert record["error"]["param"] == "prompt"
    assert "no room for an answer" in record["error"]["message"]
    record = engine.record("completion", {"prompt": [5] * 769})
    assert "768" in record["error"]["message"]


def test_chat_template_of_the_item_makes_the_prompt(engine: Answers) -> None:
    expected = text(engine.completion(JAPAN))
    assert text(engine.chat(JAPAN, chat_template=RAW, max_tokens=8)) == expected


def test_template_gets_documents_and_its_own_variables(engine: Answers) -> None:
    documents = [{"title": "t", "text": JAPAN}]
    template = "{% for document in documents %}{{ document.text }}{% endfor %}{{ ending }}"
    record = engine.chat(
        "nothing",
        chat_template=template,
        documents=documents,
        chat_template_kwargs={"ending": " called"},
        max_tokens=8,
    )
    assert text(record) == text(engine.completion(JAPAN + " called"))


def test_reasoning_effort_reaches_the_template(engine: Answers) -> None:
    template = "{% if reasoning_effort == 'high' %}" + JAPAN + "{% else %}One, two, three,{% endif %}"
    for effort, prompt in (("high", JAPAN), ("low", "One, two, three,")):
        record = engine.chat(chat_template=template, reasoning_effort=effort, max_tokens=8)
        assert text(record) == text(engine.completion(prompt))


def test_generation_prompt_can_be_left_out(engine: Answers) -> None:
    template = RAW + "{% if add_generation_prompt %} not{% endif %}"
    record = engine.chat(JAPAN, chat_template=template, add_generation_prompt=False, max_tokens=8)
    assert text(record) == text(engine.completion(JAPAN))
    assert engine.chat(JAPAN, chat_template=template)["usage"]["prompt_tokens"] == 6


# Log probabilities


def test_log_probabilities_of_a_chat(engine: Answers) -> None:
    record = engine.chat(logprobs=True, top_logprobs=4, max_tokens=5, ignore_eos=True)
    content = record["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [4] * 5
    assert all(entry["logprob"] == entry["top_logprobs"][0]["logprob"] for entry in content)
    assert engine.chat(logprobs=False)["choices"][0]["logprobs"] is None


def test_log_probabilities_of_a_completion(engine: Answers) -> None:
    record = engine.completion(logprobs=5, max_tokens=3)["choices"][0]["logprobs"]
    assert [len(entry) for entry in record["top_logprobs"]] == [5] * 3
    true = engine.completion(logprobs=True, max_tokens=3)["choices"][0]["logprobs"]
    assert [len(entry) for entry in true["top_logprobs"]] == [1] * 3


# Tools


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_tool_call_keeps_to_its_schema(engine: Answers, choice: Any) -> None:
    record = engine.chat(WEATHER, tools=[TOOL], tool_choice=choice, max_tokens=100)
    (call,) = record["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    jsonschema.validate(orjson.loads(call["function"]["arguments"]), SCHEMA)


def test_a_tool_call_the_model_decides_on_is_parsed(engine: Answers) -> None:
    record = engine.chat(WEATHER, tools=[TOOL], tool_choice="auto", guided_regex=A_CALL, max_tokens=100)
    (choice,) = record["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(orjson.loads(call["function"]["arguments"]), SCHEMA)


def test_tools_that_may_not_be_called_are_not(engine: Answers) -> None:
    record = engine.chat(WEATHER, tools=[TOOL], tool_choice="none")
    assert not record["choices"][0]["message"].get("tool_calls")
    assert text(record)


def test_one_call_where_parallel_calls_are_not_wanted(engine: Answers) -> None:
    fields: dict[str, Any] = {
        "tools": [TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 120,
    }
    calls = engine.chat("The weather in Paris and in Rome?", **fields)["choices"][0]["message"]["tool_calls"]
    assert len(calls) == 1


def test_functions_are_called_and_answered_in_the_older_form(engine: Answers) -> None:
    forced = engine.chat(
        WEATHER, functions=[FUNCTION], function_call={"name": "get_weather"}, max_tokens=100
    )["choices"][0]
    assert "tool_calls" not in forced["message"]
    assert forced["message"]["function_call"]["name"] == "get_weather"
    jsonschema.validate(orjson.loads(forced["message"]["function_call"]["arguments"]), SCHEMA)
    decided = engine.chat(WEATHER, functions=[FUNCTION], guided_regex=A_CALL, max_tokens=100)["choices"][0]
    assert decided["finish_reason"] == "function_call"
    assert decided["message"]["function_call"]["name"] == "get_weather"
    silent = engine.chat(WEATHER, functions=[FUNCTION], function_call="none")["choices"][0]
    assert silent["message"]["function_call"] is None


# What has no effect, and what is refused


def test_fields_without_effect_change_nothing_and_notes_are_kept(engine: Answers) -> None:
    notes: dict[str, Any] = {"user": "u-1", "metadata": {"row": "7"}, "store": True}
    others: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "model": "another",
        "prediction": {"type": "content", "content": "Tokyo"},
        "service_tier": "flex",
        "priority": 3,
        "modalities": ["text"],
    }
    record = engine.chat(**notes, **others)
    assert text(record) == text(engine.chat())
    assert {name: record[name] for name in notes} == notes
    assert record["item"] == {"service_tier": "flex"}
    assert record["model"] == NAME


# Code between rounds of generation

SUMS = (
    "Question: What is 12 * 12?\n```python\nprint(12 * 12)\n```\n144\n>>>\nAnswer: 144\n\n"
    "Question: What is 7 * 8?\n```python\nprint(7 * 8)\n```\n56\n>>>\nAnswer: 56\n\n"
    "Question: What is 123 * 45?\n"
)
SUM = "```python\nprint(123 * 45)\n```\n5535\n>>>\nAnswer: 5535"


@pytest.mark.parametrize("kind", ["completion", "v1", "chat"])
def test_the_model_goes_on_with_what_its_code_printed(engine: Answers, kind: ItemKind) -> None:
    reason = sandbox_available()
    if reason is not None:
        # No bubblewrap or no user namespaces: the tool is refused there too. `.ci/run` installs it.
        pytest.skip(reason)
    fields: dict[str, Any] = {"max_tokens": 60, "temperature": 0, "stop": ["\n\n"]}
    header = None
    item: Any = {"prompt": SUMS, **fields}
    if kind == "v1":
        item, header = SUMS, {"max_new_tokens": 60, "temperature": 0, "stop_sequences": ["\n\n"]}
    elif kind == "chat":
        item = {"messages": [{"role": "user", "content": SUMS}], "chat_template": RAW, **fields}
    record = engine.record(kind, item, header, run_code=open_sandbox().run)
    assert "error" not in record, record
    assert (record["text"] if kind == "v1" else text(record)) == SUM
    assert [(run["code"], run["output"]) for run in record["tool_trace"]] == [("print(123 * 45)", "5535\n")]


# V1


def test_v1_prompts_with_their_log_probabilities(engine: Answers) -> None:
    header: dict[str, Any] = {
        "max_new_tokens": 6,
        "temperature": 0.0,
        "return_token_log_probs": True,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_k": -1,
        "top_p": 1.0,
        "skip_special_tokens": True,
    }
    records = engine.records("v1", [JAPAN, "One, two,"], header)
    for record in records:
        assert record["num_completion_tokens"] == len(record["tokens"]) == 6
        assert "".join(token["token"] for token in record["tokens"]) == record["text"]
        assert all(token["log_prob"] <= 0 for token in record["tokens"])
    assert records[0]["text"].startswith(" Tokyo")
    assert records[0]["num_prompt_tokens"] == 5


def test_v1_stop_sequences_end_the_text(engine: Answers) -> None:
    header: dict[str, Any] = {"max_new_tokens": 30, "temperature": 0, "stop_sequences": ["seven"]}
    record = engine.record("v1", "one, two, three, four, five,", header)
    assert record["text"] == " six, "
    assert record["tokens"] is None


def test_v1_penalties_and_sampling(engine: Answers) -> None:
    base = {"max_new_tokens": 16, "temperature": 0}
    plain = engine.record("v1", ONES, base)["text"].count("many")
    for name in ("presence_penalty", "frequency_penalty"):
        assert engine.record("v1", ONES, {**base, name: 2.0})["text"].count("many") < plain
    greedy = engine.record("v1", JAPAN, {**base, "max_new_tokens": 4})["text"]
    for one in ({"top_k": 1}, {"top_p": 1e-6}):
        hot = {"max_new_tokens": 4, "temperature": 1.0, **one}
        assert engine.record("v1", JAPAN, hot)["text"] == greedy
