"""Quantities are read and written exactly, as Kubernetes reads them, in bounded time."""

from __future__ import annotations

import time
from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.quantity import (
    format_bytes,
    format_milli_cpu,
    parse,
    parse_bytes,
    parse_milli_cpu,
)

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "milli_cpu"),
    [
        ("100m", 100),
        ("0.5", 500),
        (".5", 500),
        ("5.", 5000),
        ("1e3", 1_000_000),
        ("1E-3", 1),
        ("+2", 2000),
        ("007", 7000),
        (4, 4000),
        ("2k", 2_000_000),
        ("0", 0),
        ("-1", -1000),
    ],
)
def test_cpu_is_read_in_milli_cores(text: str | int, milli_cpu: int) -> None:
    assert parse_milli_cpu(text) == milli_cpu


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2Gi", 2 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("64Mi", 64 * 2**20),
        ("1Ki", 1024),
        ("1k", 1000),
        ("1T", 10**12),
        ("1E", 10**18),
        ("1e2", 100),
        ("1Ei", 2**60),
        (17, 17),
        ("-2Ki", -2048),
    ],
)
def test_memory_is_read_in_bytes(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "milli_cpu", "count"),
    [("1n", 1, 1), ("0.1m", 1, 1), ("1500u", 2, 1), ("0.1", 100, 1), ("-0.1m", -1, -1)],
)
def test_what_is_finer_than_the_unit_rounds_away_from_zero(
    text: str, milli_cpu: int, count: int
) -> None:
    assert parse_milli_cpu(text) == milli_cpu
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["1e99", "9223372036854775808", "8Ei", 10**40, "1e9999999"])
def test_what_is_too_large_becomes_the_largest(text: str | int) -> None:
    assert parse_bytes(text) == LARGEST
    assert parse_milli_cpu(text) == LARGEST


def test_the_largest_keeps_its_last_digit() -> None:
    assert parse_bytes(str(LARGEST)) == LARGEST
    assert parse_bytes(str(LARGEST - 1)) == LARGEST - 1
    assert parse_milli_cpu(f"{LARGEST - 1}m") == LARGEST - 1


@pytest.mark.parametrize("text", ["1e999999999999999999", "1e-999999999999999999", "0e99999999999"])
def test_a_huge_exponent_costs_nothing(text: str) -> None:
    started = time.perf_counter()
    parse(text)
    assert time.perf_counter() - started < 0.1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "abc",
        "5 Gi",
        "1Ki5",
        "Ei",
        "1e",
        "1.2.3",
        "0x10",
        "1gi",
        "1e1.5",
        "4\n",
        "\u0664",
        "--1",
        "1_000",
        "inf",
        "nan",
        ".",
        "2GiB",
        "K",
        "1" * 33,
    ],
)
def test_what_is_not_a_quantity_is_refused_with_text_and_rule(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity: expected") as refusal:
        parse_bytes(text)
    assert repr(text)[:30] in str(refusal.value)


@pytest.mark.parametrize("value", [True, 0.5, None, b"1"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a string or an integer"):
        parse(value)  # type: ignore[arg-type]  # what is no text is to be refused


@pytest.mark.parametrize(
    ("milli_cpu", "text"), [(0, "0"), (1, "1m"), (1500, "1500m"), (2000, "2"), (-1500, "-1500m")]
)
def test_cpu_is_written_shortly(milli_cpu: int, text: str) -> None:
    assert format_milli_cpu(milli_cpu) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1000, "1000"),
        (1024, "1Ki"),
        (3 * 2**29, "1536Mi"),
        (2**30, "1Gi"),
        (2**60, "1Ei"),
        (-(2**20), "-1Mi"),
    ],
)
def test_memory_is_written_with_the_largest_exact_suffix(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(-LARGEST, LARGEST))
def test_what_is_written_is_read_back(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value
    assert parse_milli_cpu(format_milli_cpu(value)) == value


SUFFIXES: dict[str, int | Decimal] = {
    "": 1,
    "m": Decimal("1e-3"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


@given(
    st.decimals(0, 10**6, places=3, allow_nan=False, allow_infinity=False),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_reading_is_multiplication_rounded_up(number: Decimal, suffix: str) -> None:
    exact = number * SUFFIXES[suffix]
    assert parse_bytes(f"{number}{suffix}") == exact.to_integral_value(ROUND_CEILING)
