"""Repetitions within repetitions are found wherever they hide."""

import pytest

from batch_pipelines.preflight.repetitions import MOST_PLACES, nested_places, patterns_in


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("abc", 1),
        ("[a-z]{1,5000}", 1),
        ("a{3}b{2,9}", 1),
        ("([a-z]{1,30} ?){1,50}", 1500),
        ("[a-y]{1,12}|#([a-z]{1,100} ?){1,200}", 20_000),
        ("((a{1,100}){1,100}){1,100}", 10**6),
        (r"(\\w{1,20} ){1,40}".replace("\\\\", "\\"), 800),
        (r"\\(a{1,100}\\){1,100}".replace("\\\\", "\\"), 1),
        ("[(]{1,100}", 1),
        ("(a*)*", 4),
        ("(a{2}){3}", 1),
        ("([a-z]{,50}){,50}", 51 * 51),
        ("(((", 1),
        ("a{", 1),
    ],
)
def test_places_of_a_pattern(pattern: str, places: int) -> None:
    assert nested_places(pattern) == places


def test_ordinary_patterns_are_far_from_the_limit() -> None:
    for pattern in (
        r"[A-Z]{3}-[0-9]{2,4}",
        r"(\\d{1,3}\\.){3}\\d{1,3}".replace("\\\\", "\\"),
        r"([A-Za-z]+ ){0,20}[A-Za-z]+",
        r"(yes|no)(, (yes|no)){0,9}",
    ):
        assert nested_places(pattern) < MOST_PLACES / 10


def test_patterns_of_a_schema_are_found_wherever_they_are() -> None:
    schema = {
        "properties": {"a": {"pattern": "x"}, "pattern": {"type": "string"}},
        "anyOf": [{"items": {"pattern": "y"}}],
        "patternProperties": {"z": {}},
    }
    assert sorted(patterns_in(schema)) == ["x", "y", "z"]
