"""What a job's items ask of the engine is known before it starts."""

from typing import Any

import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.engines.needs import NO_NEEDS, EngineNeeds
from batch_pipelines.translation.survey import Survey

MESSAGES = [{"role": "user", "content": "hi"}]
BASES: dict[ItemKind, dict[str, Any]] = {"completion": {"prompt": "hi"}, "chat": {"messages": MESSAGES}}
TOOL = {"type": "function", "function": {"name": "f"}}


def take(survey: Survey, kind: ItemKind, item: Any) -> ItemError | None:
    """What sharding does with an item that nothing else is found against."""
    draft = survey.draft(kind, item)
    if isinstance(draft, ItemError):
        return draft
    if draft is not None:
        survey.count(draft)
    return None


def after(*items: dict[str, Any], kind: ItemKind = "chat") -> Survey:
    survey = Survey(models=["the-model"])
    for item in items:
        assert take(survey, kind, {**BASES[kind], **item}) is None
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
        ({"seed": 5}, EngineNeeds(seeds=True)),
        ({"tools": [TOOL], "tool_choice": "none"}, EngineNeeds()),
        ({"functions": [{"name": "f"}]}, EngineNeeds(tools=True)),
        ({"use_beam_search": True, "n": 3}, EngineNeeds(log_probs=6)),
        ({"use_beam_search": True, "n": 3, "best_of": 20}, EngineNeeds(log_probs=40)),
        ({"logprobs": True, "top_logprobs": 7}, EngineNeeds(log_probs=7)),
        (
            {"guided_regex": "a", "guided_decoding_backend": "guidance"},
            EngineNeeds(structured_backend="guidance"),
        ),
        ({"guided_regex": "a", "guided_decoding_backend": "auto"}, EngineNeeds()),
    ],
)
def test_what_one_item_needs_the_job_needs(item: dict[str, Any], needs: EngineNeeds) -> None:
    assert after({}, item, {}).needs == needs


def test_two_backends_in_one_job_are_refused_by_name() -> None:
    survey = after({"guided_regex": "a", "guided_decoding_backend": "guidance"})
    other = {"guided_regex": "a", "guided_decoding_backend": "xgrammar"}
    error = take(survey, "chat", {**BASES["chat"], **other})
    assert error is not None
    assert error.param == "guided_decoding_backend"
    assert "'xgrammar', but items before have 'guidance'" in error.message
    assert survey.needs.structured_backend == "guidance"


def test_a_refused_item_asks_nothing_of_the_engine() -> None:
    survey = Survey()
    error = take(survey, "chat", {**BASES["chat"], "priority": 1, "audio": {}, "prediction": {"a": 1}})
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
    assert take(survey, "v1", "priority") is None
    assert survey.needs == NO_NEEDS


def test_an_item_that_something_else_refuses_asks_nothing() -> None:
    survey = Survey()
    item = {**BASES["chat"], "priority": 3, "guided_regex": "a", "guided_decoding_backend": "guidance"}
    assert survey.draft("chat", item) is not None
    assert survey.needs == NO_NEEDS


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("completion", "max_completion_tokens", "has no effect in a completion"),
        ("chat", "prompt", "has no effect in a chat"),
        ("chat", "temprature", "did you mean `temperature`?"),
        ("chat", "structured_outputs", "is no field of the contract"),
    ],
)
def test_a_key_that_looks_like_a_field_is_warned_of(kind: ItemKind, name: str, told: str) -> None:
    (warning,) = after({name: 1}, {name: 2}, kind=kind).warnings
    assert f"`{name}`" in warning
    assert told in warning
    assert "(2 items)" in warning


def test_the_senders_own_keys_are_no_warnings_and_cost_no_memory() -> None:
    survey = after({"custom_id": 1, "row": 2, "source": "x", "my_label": "y"})
    assert survey.warnings == []
    survey = after(*({f"temperature_{n}": 1} for n in range(1000)))
    assert len(survey.warnings) <= 200
