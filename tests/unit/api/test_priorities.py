"""What a request's priority means to Dagster's queue and to Kubernetes."""

import pytest

from batch_pipelines.api.priorities import dagster_priority, priority_class, priority_problem

CLASSES = {"High": "batch-high", "urgent": "batch-urgent", "7": "batch-seven"}


@pytest.mark.parametrize(
    ("priority", "number"),
    [
        (None, 0),
        ("low", -10),
        ("default", 0),
        (" HIGH ", 10),
        ("5", 5),
        ("-12", -12),
        ("urgent", 0),
        ("٣", 0),
        ("1" * 10, 0),
    ],
)
def test_its_place_in_the_queue(priority: str | None, number: int) -> None:
    assert dagster_priority(priority) == number


@pytest.mark.parametrize(
    ("priority", "expected"),
    [("high", "batch-high"), ("URGENT", "batch-urgent"), ("7", "batch-seven"), ("low", None), (None, None)],
)
def test_its_priority_class(priority: str | None, expected: str | None) -> None:
    assert priority_class(priority, CLASSES) == expected


@pytest.mark.parametrize("priority", [None, "default", "low", "3"])
def test_one_without_a_class_has_that_of_default(priority: str | None) -> None:
    assert priority_class(priority, {**CLASSES, "default": "batch"}) == "batch"


@pytest.mark.parametrize("priority", [None, "low", "Normal", "medium", "0", "-5", "123456789", "urgent"])
def test_known_ones_mean_something(priority: str | None) -> None:
    assert priority_problem(priority, CLASSES) is None


@pytest.mark.parametrize("priority", ["", "p0", "1.5", "1e3", "--1", "-", "٣", "1234567890", "high!"])
def test_unknown_ones_are_told_with_the_known(priority: str) -> None:
    problem = priority_problem(priority, CLASSES)
    assert problem is not None
    assert "expected 7, default, high, low, medium, normal, urgent, or a whole number" in problem
