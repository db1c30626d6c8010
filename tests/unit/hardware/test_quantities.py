"""Kubernetes quantities, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_pipelines.hardware.quantities import (
    QuantityInvalid,
    format_bytes,
    format_cpus,
    parse_bytes,
    parse_cpus,
)


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        ("500m", 500),
        ("8", 8000),
        (4, 4000),
        (1.5, 1500),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("1e3", 1_000_000),
        ("2E1", 20_000),
        ("1k", 1_000_000),
        ("0.0001", 1),  # Kubernetes rounds up too
        ("100u", 1),
        ("1500m", 1500),
        (1e-05, 1),
    ],
)
def test_cpus_are_read_as_thousandths(value: str | int | float, milli: int) -> None:
    assert parse_cpus(value) == milli


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("10Gi", 10 * 2**30),
        ("10G", 10**10),
        ("1e9", 10**9),
        ("1.5Gi", 3 * 2**29),
        ("0.5Gi", 2**29),
        (2**30, 2**30),
        (1e9, 10**9),
        ("128974848000m", 128_974_848),
        ("2Ti", 2**41),
        ("1048576", 2**20),
    ],
)
def test_memory_is_read_as_bytes(value: str | int | float, number: int) -> None:
    assert parse_bytes(value, "memory") == number


@pytest.mark.parametrize(
    "value",
    ["", " ", "x", "-1", "+1", "1 Gi", "1GB", "1gi", "1KI", "Gi", "1e", "0x10", "1_000", "nan", "inf", "1,5",
     "1e3Gi", "1..5", "٣", "\uff11\uff10", "Ki", "5 ", True, "9" * 50, "1e999", -1, -0.5, float("nan"),
     float("inf")],
)  # fmt: skip
def test_anything_else_is_refused_by_name(value: str | int | float) -> None:
    with pytest.raises(QuantityInvalid, match=r"^cpus is "):
        parse_cpus(value)
    with pytest.raises(QuantityInvalid, match=r"^storage is "):
        parse_bytes(value, "storage")


@pytest.mark.parametrize("value", [0, "0", "0m", 0.0, "1e99", "10E", 1e20, 2**63])
def test_what_is_out_of_range_is_refused(value: str | int | float) -> None:
    with pytest.raises(QuantityInvalid, match="above 0"):
        parse_cpus(value)


@pytest.mark.parametrize("value", [32, "64", 1.5, "512Ki", "100m"])
def test_memory_without_its_unit_is_refused(value: str | int | float) -> None:
    with pytest.raises(QuantityInvalid, match="write a unit, such as '32Gi'"):
        parse_bytes(value, "memory")


@pytest.mark.parametrize(("milli", "text"), [(500, "500m"), (8000, "8"), (1500, "1500m"), (1, "1m")])
def test_cpus_are_written_as_kubernetes_does(milli: int, text: str) -> None:
    assert format_cpus(milli) == text


@pytest.mark.parametrize(
    ("number", "text"), [(10 * 2**30, "10Gi"), (3 * 2**29, "1536Mi"), (10**9, "1000000000"), (2**41, "2Ti")]
)
def test_bytes_are_written_exactly(number: int, text: str) -> None:
    assert format_bytes(number) == text


@given(st.integers(1, 2**53))
def test_cpus_written_are_read_back(milli: int) -> None:
    assert parse_cpus(format_cpus(milli)) == milli


@given(st.integers(2**20, 2**63 - 1))
def test_bytes_written_are_read_back(number: int) -> None:
    assert parse_bytes(format_bytes(number), "memory") == number
