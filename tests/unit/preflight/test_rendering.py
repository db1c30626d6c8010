"""Templates: compiled and rendered in a sandbox, as transformers would for the engine."""

from typing import Any

import pytest

from batch_pipelines.preflight.rendering import TemplateFails, render, variables

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


def prompt(template: str, *messages: Any, most: int = 1000, **body: Any) -> str:
    return render(template, {"messages": list(messages) or [USER], **body}, {"bos_token": "<s>"}, most)


def test_what_a_template_is_given() -> None:
    template = (
        "{{ bos_token }}{{ messages[0].content }}|{{ tools }}|{{ documents }}|{{ add_generation_prompt }}"
        "|{{ reasoning_effort }}|{{ enable_thinking }}|{{ mine }}"
    )
    assert prompt(template) == "<s>hi|None|None|True|||"
    body: dict[str, Any] = {
        "documents": [{"text": "d"}],
        "add_generation_prompt": False,
        "reasoning_effort": "low",
        "chat_template_kwargs": {"mine": 1, "enable_thinking": False, "bos_token": "B"},
    }
    assert prompt(template, **body) == "Bhi|None|[{'text': 'd'}]|False|low|False|1"


def test_the_sandbox_has_what_templates_of_models_use() -> None:
    assert prompt("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert prompt("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert prompt("{% generation %}a{% endgeneration %}") == "a"
    assert len(prompt("{{ strftime_now('%Y') }}")) == 4


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('id') }}",
        "{% for i in range(999999) %}{% endfor %}",
    ],
)
def test_a_way_out_of_the_sandbox_is_closed(template: str) -> None:
    with pytest.raises(TemplateFails, match=r"^fails: "):
        prompt(template)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% if %}", "does not compile: Expected an expression, got 'end of statement block' (line 1)"),
        ("{{ raise_exception('no system') }}", "fails: no system"),
        ("{{ 1 / 0 }}", "fails: division by zero"),
        ("{{ messages[0]['content'] + 1 }}", "fails: "),
        ("{{ nothing.at.all }}", "fails: 'nothing' is undefined"),
        ("{% for i in range(2000) %}x{% endfor %}", "renders to more than 1,000 characters"),
    ],
)
def test_a_template_that_fails_says_why(template: str, said: str) -> None:
    with pytest.raises(TemplateFails) as failure:
        prompt(template)
    assert str(failure.value).startswith(said)


def test_what_a_template_takes_from_outside() -> None:
    names = variables(
        "{% set a = 1 %}{{ a }}{% for m in messages %}{{ m.b }}{% endfor %}{% if tools %}{% endif %}"
    )
    assert names == {"messages", "tools"}


def test_contents_are_texts_or_parts_as_the_template_reads_them() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}
    assert prompt("{{ messages[0].content }}", parts) == "a\nb"
    by_part = "{% for p in messages[0]['content'] %}<{{ p.type }}:{{ p.text }}>{% endfor %}"
    assert prompt(by_part, parts) == "<text:a><text:b>"
    assert prompt(by_part, USER) == "<text:hi>"
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert prompt(by_part, image) == "<image:>"
    assert prompt("{{ messages[0].content }}", image) == ""


def test_calls_reach_a_template_with_their_arguments_as_objects() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    broken = {**calls, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}
    template = (
        "{{ messages[0].content }}{{ messages[0].tool_calls[0].function.arguments.x | default('none') }}"
    )
    assert prompt(template, calls) == "1"
    assert prompt(template, broken) == "none"


def test_a_developers_message_becomes_the_systems_where_the_template_does_not_know_it() -> None:
    shown = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    developer, system = {"role": "developer", "content": "d"}, {"role": "system", "content": "s"}
    assert prompt(shown, developer, USER) == "system:d;user:hi;"
    assert prompt(shown, system, USER, developer) == "system:s\n\nd;user:hi;"
    assert prompt(shown + "{# 'developer' #}", developer, USER) == "developer:d;user:hi;"


def test_a_message_that_is_to_be_continued_stays_open() -> None:
    ends = "{% for m in messages %}{{ m.content }}<end>{% endfor %}"
    begun = {"role": "assistant", "content": "Well,"}
    assert prompt(ends, USER, begun) == "hi<end>Well,<end>"
    assert prompt(ends, USER, begun, continue_final_message=True) == "hi<end>Well,"
    with pytest.raises(TemplateFails, match="does not show the last message"):
        prompt("{{ messages[0].content }}", USER, begun, continue_final_message=True)
