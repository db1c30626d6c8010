"""The examples keep the contract, but for the one item that is broken on purpose."""

from pathlib import Path

import pytest

from batch_pipelines.api.items import ItemKind, ValidItem, validate_item
from batch_pipelines.api.parse import parse_request

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["request.json", "prompts.json"])
def test_example_request_is_valid_and_writes_below_the_project(name: str) -> None:
    request = parse_request((EXAMPLES / name).read_bytes())
    assert request.engine_config.model == "SmolLM2-135M-Instruct"
    assert request.output_data_path.startswith(".batch-pipelines/outputs/")
    if request.input_data_path is not None:
        assert (EXAMPLES.parent / request.input_data_path).is_file()


def test_exactly_one_example_chat_is_broken() -> None:
    kind: ItemKind = "chat"
    lines = (EXAMPLES / "chats.jsonl").read_bytes().splitlines()
    broken = [
        number for number, line in enumerate(lines) if not isinstance(validate_item(kind, line), ValidItem)
    ]
    assert len(lines) == 40
    assert broken == [19]
    assert b"broken-on-purpose" in lines[19]
