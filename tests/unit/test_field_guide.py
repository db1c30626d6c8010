"""The page of all fields is the contract's, whole, and what the program says now."""

import json
from pathlib import Path

import pytest

from batch_pipelines.field_guide import render_markdown, sections

ROOT = Path(__file__).parents[2]
CONTRACT = json.loads((ROOT / "tests" / "data" / "contract_fields.json").read_text())
ROWS = {section.title: {row.name: row for row in section.rows} for section in sections()}
IN_VLLM = {"passed", "translated"}


@pytest.mark.parametrize("title", CONTRACT)
def test_every_field_of_the_contract_is_on_the_page(title: str) -> None:
    assert {field["name"] for field in CONTRACT[title]} <= set(ROWS[title])


def test_every_field_says_what_it_is_and_what_becomes_of_it() -> None:
    for title, rows in ROWS.items():
        for name, row in rows.items():
            assert row.meaning, f"{title}.{name}"
            assert row.fate, f"{title}.{name}"


@pytest.mark.parametrize(
    "title",
    ["FilteredCompletionV2Request", "FilteredChatCompletionV2Request", "BatchCompletionsModelConfig"],
)
def test_what_reaches_vllm_says_since_when(title: str) -> None:
    assert [name for name, row in ROWS[title].items() if row.fate in IN_VLLM and not row.since] == []


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert (ROOT / "docs" / "fields.md").read_text() == render_markdown(), "run `make docs`"
