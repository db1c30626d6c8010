"""A request's labels are such as Kubernetes takes."""

from typing import Any

import jsonschema
import pytest

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.labels import MAX_LABELS, key_problem
from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.schema import json_schema

OK = {"input_data_path": "i", "output_data_path": "o", "model_config": {"model": "m"}}

GOOD: list[dict[str, str]] = [
    {},
    {"team": "search"},
    {"a": "", "A.b_c-9": "v1.2_x-Y"},
    {"n" * 63: "v" * 63},
    {f"n{index}": "" for index in range(MAX_LABELS)},
]
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"team": "machine learning"}, "/labels/team", "the value 'machine learning' cannot be"),
    ({"team": "v" * 64}, "/labels/team", "at most 63"),
    ({"team": "-x"}, "/labels/team", "letter or digit at its start and end"),
    ({"team": "x\n"}, "/labels/team", "cannot be"),
    ({"team": "é"}, "/labels/team", "cannot be"),
    ({"": "x"}, "/labels/", "the name '' cannot be"),
    ({"te am": "x"}, "/labels/te am", "the name 'te am' cannot be"),
    ({"n" * 64: "x"}, f"/labels/{'n' * 64}", "at most 63"),
    ({"job-name": "x"}, "/labels/job-name", "Kubernetes' own"),
    ({"controller-uid": "x"}, "/labels/controller-uid", "Kubernetes' own"),
    ({"example.com/team": "x"}, "/labels/example.com~1team", "write it without"),
    ({"kubernetes.io/arch": "arm64"}, "/labels/kubernetes.io~1arch", "write it without"),
    ({"dagster/run-id": "x"}, "/labels/dagster~1run-id", "write it without"),
    ({"a~b": "x"}, "/labels/a~0b", "cannot be"),
    ({f"n{index}": "" for index in range(MAX_LABELS + 1)}, "/labels", "at most 32"),
]


def errors_of(labels: Any) -> list[tuple[str, str]]:
    with pytest.raises(RequestInvalid) as caught:
        parse_request({**OK, "labels": labels})
    return [(error.pointer, error.message) for error in caught.value.errors]


@pytest.mark.parametrize("labels", GOOD)
def test_what_kubernetes_takes_is_taken(labels: dict[str, str]) -> None:
    assert parse_request({**OK, "labels": labels}).labels == labels
    jsonschema.validate({**OK, "labels": labels}, json_schema("request"))


@pytest.mark.parametrize(("labels", "pointer", "says"), BAD)
def test_anything_else_is_refused_by_name_with_the_rule(
    labels: dict[str, Any], pointer: str, says: str
) -> None:
    ((where, message),) = errors_of(labels)
    assert where == pointer
    assert says in message


@pytest.mark.parametrize("labels", [labels for labels, _, _ in BAD if labels != {"team": "x\n"}])
def test_the_schema_refuses_it_too(labels: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**OK, "labels": labels}, json_schema("request"))


def test_all_wrong_labels_are_told_at_once_beside_other_errors() -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_request({**OK, "labels": {"a b": "c d", "n": 1, "ok": "ok"}, "gpus": -1})
    assert sorted(error.pointer for error in caught.value.errors) == [
        "/gpus",
        "/labels/a b",
        "/labels/a b",
        "/labels/n",
    ]


@pytest.mark.parametrize("key", ["app", "nvidia.com/gpu.product", "a.b-c.d/E_f"])
def test_keys_with_a_domain_are_keys_of_kubernetes(key: str) -> None:
    assert key_problem(key) is None


@pytest.mark.parametrize("key", ["", "/x", "x/", "a/b/c", "UP.com/x", "-a.com/x", f"{'a' * 254}/x", "a b"])
def test_other_keys_are_not(key: str) -> None:
    assert key_problem(key) is not None
