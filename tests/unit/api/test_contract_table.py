"""Every object and field of the public contract is in the printed schemas, with its type, bounds aside."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from batch_pipelines.api.schema import SchemaName, json_schema

TABLE: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "contract_fields.json").read_text()
)
FIELDS = [(name, field) for name, fields in TABLE.items() for field in fields]

# Types of the table that no object of the table describes: by what they are in JSON.
UNLISTED = {
    "Metadata": "object",
    "FunctionParameters": "object",
    "ResponseFormatJsonSchemaSchema": "object",
    "Audio": "object",
    "FunctionCall": "object",
    "ChatCompletionRequestMessage": "object",
    "ChatCompletionMessageToolCall": "object",
}
UNIONS = {
    ("CreateBatchCompletionsV2Request", "cpus"): {"string", "integer", "number"},
    ("CreateBatchCompletionsV2Request", "memory"): {"string", "integer", "number"},
    ("CreateBatchCompletionsV2Request", "storage"): {"string", "integer", "number"},
    ("CreateBatchCompletionsV2Request", "content"): {"object", "array"},
    ("FilteredCompletionV2Request", "prompt"): {"string", "array"},
    ("FilteredCompletionV2Request", "stop"): {"string", "array"},
    ("FilteredCompletionV2Request", "response_format"): {"object"},
    ("FilteredChatCompletionV2Request", "stop"): {"string", "array"},
    ("FilteredChatCompletionV2Request", "response_format"): {"object"},
    ("FilteredChatCompletionV2Request", "tool_choice"): {"string", "object"},
    ("FilteredChatCompletionV2Request", "function_call"): {"string", "object"},
    ("ChatCompletionRequestDeveloperMessage", "content"): {"string", "array"},
    ("ChatCompletionRequestSystemMessage", "content"): {"string", "array"},
    ("ChatCompletionRequestUserMessage", "content"): {"string", "array"},
    ("ChatCompletionRequestAssistantMessage", "content"): {"string", "array"},
    ("ChatCompletionRequestToolMessage", "content"): {"string", "array"},
    ("Audio2", "voice"): {"string"},
    ("PredictionContent", "content"): {"string", "array"},
}


def _objects() -> dict[str, dict[str, Any]]:
    """Every object of every printed schema by name, with references put in place."""
    found: dict[str, dict[str, Any]] = {}
    for name in get_args(SchemaName):
        schema = json_schema(name)
        definitions = schema.get("$defs", {})
        if "title" in schema:
            definitions = {schema["title"]: schema, **definitions}
        for title, definition in definitions.items():
            found[title] = {**definition, "$defs": schema.get("$defs", {})}
    return found


OBJECTS = _objects()


def _branches(schema: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in schema:
        return _branches(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return [leaf for branch in schema["anyOf"] for leaf in _branches(branch, definitions)]
    return [schema]


def _field(owner: str, name: str) -> list[dict[str, Any]]:
    definition = OBJECTS[owner]
    return _branches(definition["properties"][name], definition["$defs"])


def _kinds(branches: list[dict[str, Any]]) -> set[str]:
    return {branch["type"] for branch in branches} - {"null"}


def test_the_table_is_whole() -> None:
    assert (len(TABLE), len(FIELDS)) == (29, 232)


@pytest.mark.parametrize("name", TABLE)
def test_object_has_the_required_fields_of_the_table_and_no_other(name: str) -> None:
    assert set(OBJECTS[name].get("required", [])) == {
        field["name"] for field in TABLE[name] if field["required"]
    }


@pytest.mark.parametrize("name", TABLE)
def test_object_has_no_field_beside_the_table(name: str) -> None:
    assert set(OBJECTS[name]["properties"]) == {field["name"] for field in TABLE[name]}


@pytest.mark.parametrize(
    ("owner", "field"), FIELDS, ids=[f"{owner}.{field['name']}" for owner, field in FIELDS]
)
def test_field_has_the_type_of_the_table(owner: str, field: dict[str, Any]) -> None:
    branches = _field(owner, field["name"])
    declared: str = field["type"]
    if field["nullable"] or not field["required"]:
        assert {"type": "null"} in branches
    if declared.startswith("'"):
        expected = {value.strip(" '") for value in declared.split("|")}
        allowed = {value for branch in branches for value in branch.get("enum", [branch.get("const")])} - {
            None
        }
        assert allowed == expected
    elif declared == "union":
        assert _kinds(branches) == UNIONS[owner, field["name"]]
    elif declared.endswith("[]"):
        array = next(branch for branch in branches if branch["type"] == "array")
        item = declared.removesuffix("[]")
        expected_items = UNLISTED.get(item, "object" if item in TABLE else item)
        assert _kinds(_branches(array["items"], OBJECTS[owner]["$defs"])) == {expected_items}
    elif declared in TABLE:
        assert declared in {branch.get("title") for branch in branches}
    else:
        assert UNLISTED.get(declared, declared) in _kinds(branches)


@pytest.mark.parametrize(
    ("owner", "field"), FIELDS, ids=[f"{owner}.{field['name']}" for owner, field in FIELDS]
)
def test_field_is_described(owner: str, field: dict[str, Any]) -> None:
    described = OBJECTS[owner]["properties"][field["name"]].get("description", "")
    assert described.endswith(".")
