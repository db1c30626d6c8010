"""The marks by which a text calls the tool."""

import pytest

from batch_pipelines.tool_use.code_blocks import Call, find_call, output_block, shorten


def test_block_of_python_is_a_call_up_to_the_line_end_behind_its_fence() -> None:
    text = "Let me see.\n```python\nimport math\nprint(1)\n```\n3.14 is made up"
    call = find_call(text)
    assert call == Call("import math\nprint(1)", text.index("3.14"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no code",
        "```python\nprint(1)",
        "```python\nprint(1)\n```",
        "```bash\nls\n```\n",
        "```\nprint(1)\n```\n",
        "```python print(1)\n```\n",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert find_call(text) is None


def test_first_call_counts() -> None:
    assert find_call("```python\n1\n```\n```python\n2\n```\n") == Call("1", 16)


def test_block_in_another_language_before_it_does_no_harm() -> None:
    call = find_call("```bash\nls\n```\n```python\n2\n```\n")
    assert call is not None
    assert call.code == "2"


def test_empty_block_is_a_call_of_nothing() -> None:
    assert find_call("```python\n```\nmore") == Call("", 14)


@pytest.mark.parametrize(
    ("output", "block"),
    [("1\n", "1\n>>>\n"), ("1", "1\n>>>\n"), ("", "\n>>>\n"), ("a\n\n", "a\n\n>>>\n")],
)
def test_output_ends_with_its_mark_on_a_line_of_its_own(output: str, block: str) -> None:
    assert output_block(output) == block


def test_long_text_loses_its_middle_and_says_so() -> None:
    assert shorten("a" * 50 + "b" * 100 + "c" * 50, 100) == (
        "a" * 50 + "\n[... 100 characters left out ...]\n" + "c" * 50
    )
    assert shorten("abc", 3) == "abc"
