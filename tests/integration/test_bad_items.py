"""Good items beside every kind of bad one, on the real engine: who is answered, and who is told what.

The item outcomes of the corpus that people's complaints about batch systems add up to are here; what the
file as a whole does wrong is in `tests/unit/stages/test_corpus.py`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.api.job import JobStatus
from batch_pipelines.models.smollm2 import NAME
from tests.support.deployment import Deployment, deployment
from tests.support.jobs import chat

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

MODELS_DIR = Path(os.environ.get("BATCH_PIPELINES_HOME", ".batch-pipelines")).absolute() / "models"
CONTEXT = 512
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
RECURSIVE = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{{ j }}{% endfor %}{% endfor %}"
ESCAPE = "{{ ''.__class__.__mro__[1].__subclasses__() }}"


def image(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": value}}


# What is wrong, the item, and the field its error must name.
BAD_CHATS: list[tuple[str, dict[str, Any], str]] = [
    ("no messages", {"messages": []}, "messages"),
    ("unknown role", {"messages": [{"role": "king", "content": "hi"}]}, "messages[0]"),
    ("null content", {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ("temperature below 0", chat("a", temperature=-1), "temperature"),
    ("temperature above 2", chat("a", temperature=2.5), "temperature"),
    ("max_tokens 0", chat("a", max_tokens=0), "max_tokens"),
    ("max_tokens below 0", chat("a", max_tokens=-1), "max_tokens"),
    ("max_tokens beyond the context", chat("a", max_tokens=CONTEXT + 1), "max_tokens"),
    ("huge max_tokens", chat("a", max_tokens=10**12), "max_tokens"),
    ("huge max_completion_tokens", chat("a", max_completion_tokens=10**9), "max_completion_tokens"),
    ("n 0", chat("a", n=0), "n"),
    ("huge n", chat("a", n=10**9), "n"),
    ("best_of less than n", chat("a", n=3, best_of=2), "best_of"),
    ("too many logprobs", chat("a", logprobs=True, top_logprobs=10**6), "top_logprobs"),
    ("top_logprobs alone", chat("a", top_logprobs=2), "top_logprobs"),
    ("too many stop strings", chat("a", stop=[str(n) for n in range(10_000)]), "stop"),
    ("empty stop string", chat("a", stop=[""]), "stop"),
    ("biased token out of the vocabulary", chat("a", logit_bias={"99999999": 1}), "logit_bias"),
    ("bias on no token", chat("a", logit_bias={"abc": 1}), "logit_bias"),
    ("stop token out of the vocabulary", chat("a", stop_token_ids=[99_999_999]), "stop_token_ids"),
    ("broken regular expression", chat("a", guided_regex="(["), "guided_regex"),
    ("endless regular expression", chat("a", guided_regex="((a{1,1000}){1,1000}){1,1000}"), "guided_regex"),
    ("broken grammar", chat("a", guided_grammar="root ::= ((("), "guided_grammar"),
    ("empty grammar", chat("a", guided_grammar=""), "guided_grammar"),
    ("no choices", chat("a", guided_choice=[]), "guided_choice"),
    ("schema of no type", chat("a", guided_json={"type": "nope"}), "guided_json"),
    ("schema that is only itself", chat("a", guided_json=RECURSIVE), "guided_json"),
    ("schema that refers to nothing", chat("a", guided_json={"$ref": "#/$defs/nope"}), "guided_json"),
    ("schema that is text", chat("a", guided_json=""), "guided_json"),
    ("form that is false", chat("a", response_format=False), "response_format"),
    ("broken schema", chat("a", response_format=schema({"type": 5})), "response_format"),
    ("two forms", chat("a", guided_regex="a", guided_choice=["a"]), "guided_regex"),
    ("unknown backend", chat("a", guided_regex="a", guided_decoding_backend="x"), "guided_decoding_backend"),
    (
        "tool that is not there",
        chat("a", tools=[TOOL], tool_choice={**TOOL, "function": {"name": "g"}}),
        "tool_choice",
    ),
    ("choice without tools", chat("a", tool_choice="required"), "tool_choice"),
    ("tools the model cannot decide on", chat("a", tools=[TOOL]), "tool_choice"),
    (
        "tool with a broken schema",
        chat(
            "a",
            tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "nope"}}}],
            tool_choice="required",
        ),
        "tools",
    ),
    ("function without a name", chat("a", functions=[{"description": "b"}]), "functions"),
    ("broken template", chat("a", chat_template="{% for %}"), "chat_template"),
    ("template that never ends", chat("a", chat_template=LOOP), "chat_template"),
    ("template that wants out", chat("a", chat_template=ESCAPE), "chat_template"),
    ("image for a model of text", image("data:image/png;base64,AAAA"), "messages"),
    ("image from an inner address", image("http://169.254.169.254/latest"), "messages"),
    (
        "audio for a model of text",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}],
                }
            ]
        },
        "messages",
    ),
    ("spoken answer", chat("a", modalities=["text", "audio"]), "modalities"),
    ("web search", chat("a", web_search_options={}), "web_search_options"),
    ("prompt over the context", chat("word " * 2 * CONTEXT), "messages"),
    ("least beyond most", chat("a", min_tokens=9, max_tokens=8), "min_tokens"),
    ("penalty of nothing", chat("a", repetition_penalty=0), "repetition_penalty"),
    (
        "both prompts",
        chat("a", add_generation_prompt=True, continue_final_message=True),
        "add_generation_prompt",
    ),
    ("search that ignores", chat("a", use_beam_search=True, stop=["a"]), "use_beam_search"),
    ("search that ends early", chat("a", use_beam_search=True, early_stopping=True), "early_stopping"),
    ("documents of numbers", chat("a", documents=[{"title": 1}]), "documents"),
]
BAD_PROMPTS: list[tuple[str, dict[str, Any], str]] = [
    ("empty prompt", {"prompt": ""}, "prompt"),
    ("no prompts", {"prompt": []}, "prompt"),
    ("null prompt", {"prompt": None}, "prompt"),
    ("token out of the vocabulary", {"prompt": [99_999_999]}, "prompt"),
    ("negative token", {"prompt": [-1]}, "prompt"),
    ("prompt over the context", {"prompt": "word " * 2 * CONTEXT}, "prompt"),
    ("prompt of exactly the context", {"prompt": [5] * CONTEXT}, "prompt"),
    ("suffix", {"prompt": "a", "suffix": "b"}, "suffix"),
    ("too many logprobs", {"prompt": "a", "logprobs": 10**6}, "logprobs"),
    ("no tokens", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
]
GOOD_PROMPTS: list[tuple[str, dict[str, Any]]] = [
    ("one below the context", {"prompt": [5] * (CONTEXT - 1), "max_tokens": 1}),
    ("more wanted than there is room for", {"prompt": [5] * (CONTEXT - 1), "max_tokens": 2}),
    ("null max_tokens", {"prompt": "a", "max_tokens": None}),
    ("special tokens' text", {"prompt": "<|im_start|>user\nhi<|im_end|>", "max_tokens": 4}),
    ("separators of lines", {"prompt": "a\u2028b\u2029c\u0085d\x0be\x0cf", "max_tokens": 4}),
    ("a NUL", {"prompt": "a\x00b", "max_tokens": 4}),
    ("stream", {"prompt": "a", "stream": True, "max_tokens": 4}),
    ("another model", {"prompt": "a", "model": "another", "max_tokens": 4}),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("bad")
    with deployment(folder, {"BATCH_PIPELINES_MODELS_DIR": str(MODELS_DIR)}) as site:
        yield site


def run(site: Deployment, name: str, items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The records of a job of these items, and the run's id."""
    job_id = site.submit(
        name, items, model_config={"model": NAME, "max_num_seqs": 8, "max_model_len": CONTEXT}
    )
    view = site.wait_for_end(job_id, within_sec=400)
    assert view.job.status is JobStatus.COMPLETED, view
    assert [(report.engine_starts, report.engine_deaths) for report in site.reports(job_id)] == [(1, 0)]
    return site.records(name), job_id


def mixed(
    bad: list[tuple[str, dict[str, Any], str]], good: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """A good item before each bad one and after the last, and the field each error must name."""
    items: list[dict[str, Any]] = []
    fields: list[str | None] = []
    for what, item, field in bad:
        items += [{**good, "custom_id": "good"}, {**item, "custom_id": what}]
        fields += [None, field]
    return [*items, {**good, "custom_id": "good"}], [*fields, None]


def check(items: list[dict[str, Any]], fields: list[str | None], records: list[dict[str, Any]]) -> None:
    """Good items must be answered rightly, and each bad one have an error that names its field."""
    wrong = []
    for item, field, record in zip(items, fields, records, strict=True):
        assert record["custom_id"] == item["custom_id"]
        error = record.get("error")
        if field is None:
            choice = record["choices"][0]
            assert "Tokyo" in (choice.get("text") or choice["message"]["content"])
        elif error is None or not (error["param"] or "").startswith(field) or error["code"] != 400:
            wrong.append((item["custom_id"], field, error or record))
        elif field.partition("[")[0] not in error["message"]:
            wrong.append((item["custom_id"], field, error))
    assert wrong == []


def test_good_chats_are_answered_and_each_bad_one_names_its_field(site: Deployment) -> None:
    items, fields = mixed(BAD_CHATS, chat("What is the capital of Japan?", temperature=0, max_tokens=16))
    records, _ = run(site, "chats", items)
    check(items, fields, records)


def test_good_prompts_are_answered_and_each_bad_one_names_its_field(site: Deployment) -> None:
    good = {"prompt": "The capital of Japan is", "temperature": 0, "max_tokens": 8}
    items, fields = mixed(BAD_PROMPTS, good)
    unusual = [{**item, "custom_id": what} for what, item in GOOD_PROMPTS]
    same = [{"prompt": "a", "max_tokens": 1, "temperature": 0}] * 300
    records, job_id = run(site, "prompts", [*items, *unusual, *same])
    check(items, fields, records[: len(items)])
    answered = records[len(items) : len(items) + len(unusual)]
    assert [(record["custom_id"], record.get("error")) for record in answered] == [
        (item["custom_id"], None) for item in unusual
    ]
    assert len({record["choices"][0]["text"] for record in records[-len(same) :]}) == 1
    manifest = site.manifest(job_id)
    assert manifest is not None
    told = " ".join(manifest.warnings)
    assert "`stream` has no effect" in told
    assert "`model` has no effect" in told
    assert "max_tokens: more than the context has left" in told
