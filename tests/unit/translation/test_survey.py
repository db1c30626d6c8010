"""What a job's items ask of the engine is known before it starts."""

from typing import Any

import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.engines.needs import NO_NEEDS, EngineNeeds
from batch_pipelines.translation.survey import Survey

MESSAGES = [{"role": "user", "content": "hi"}]
BASES: dict[ItemKind, dict[str, Any]] = {"completion": {"prompt": "hi"}, "chat": {"messages": MESSAGES}}
TOOL = {"type": "function", "function": {"name": "f"}}


def after(*items: dict[str, Any], kind: ItemKind = "chat") -> Survey:
    survey = Survey(models=["the-model"])
    for item in items:
        assert survey.take(kind, {**BASES[kind], **item}) is None
    return survey


def test_plain_items_need_nothing() -> None:
    survey = after({}, {"temperature": 0, "max_tokens": 5, "priority": 0, "logprobs": True})
    assert survey.needs == NO_NEEDS.model_copy(update={"log_probs": 1})
    assert survey.warnings == []


@pytest.mark.parametrize(
    ("item", "needs"),
    [
        ({"priority": 3}, EngineNeeds(priorities=True)),
        ({"chat_template": "{{ messages }}"}, EngineNeeds(chat_templates=True)),
        ({"tools": [TOOL]}, EngineNeeds(tools=True)),
        ({"tools": [TOOL], "tool_choice": "none"}, EngineNeeds()),
        ({"functions": [{"name": "f"}]}, EngineNeeds(tools=True)),
        ({"use_beam_search": True, "n": 3}, EngineNeeds(log_probs=6)),
        ({"use_beam_search": True, "n": 3, "best_of": 20}, EngineNeeds(log_probs=40)),
        ({"logprobs": True, "top_logprobs": 7}, EngineNeeds(log_probs=7)),
        (
            {"guided_regex": "a", "guided_decoding_backend": "outlines"},
            EngineNeeds(structured_backend="outlines"),
        ),
        ({"guided_regex": "a", "guided_decoding_backend": "auto"}, EngineNeeds()),
    ],
)
def test_what_one_item_needs_the_job_needs(item: dict[str, Any], needs: EngineNeeds) -> None:
    assert after({}, item, {}).needs == needs


def test_two_backends_in_one_job_are_refused_by_name() -> None:
    survey = after({"guided_regex": "a", "guided_decoding_backend": "outlines"})
    error = survey.take("chat", {**BASES["chat"], "guided_regex": "a", "guided_decoding_backend": "xgrammar"})
    assert error is not None
    assert error.param == "guided_decoding_backend"
    assert "'xgrammar', but items before have 'outlines'" in error.message
    assert survey.needs.structured_backend == "outlines"


def test_a_refused_item_asks_nothing_of_the_engine() -> None:
    survey = Survey()
    error = survey.take("chat", {**BASES["chat"], "priority": 1, "audio": {}, "prediction": {"a": 1}})
    assert error is not None
    assert error.param == "audio"
    assert survey.needs == NO_NEEDS
    assert survey.warnings == []


def test_fields_without_effect_are_counted() -> None:
    survey = after({"stream": True}, {"stream": True, "model": "another"}, {"stream": False})
    assert survey.warnings == [
        "`model` has no effect in an item, the job's model answers all (1 item)",
        "`stream` has no effect, a batch answers whole (2 items)",
    ]


def test_the_jobs_own_model_is_nothing_to_warn_of() -> None:
    assert after({"model": "the-model"}).warnings == []


def test_a_v1_prompt_has_no_fields() -> None:
    survey = Survey()
    assert survey.take("v1", "priority") is None
    assert survey.needs == NO_NEEDS
