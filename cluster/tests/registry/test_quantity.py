"""Quantities: canonical spelling and exact value."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cluster.registry.model import quantity


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("1k", "1k"),
        ("100000", "100k"),
        ("+2", "2"),
        ("007", "7"),
        ("-1", "-1"),
        ("0Gi", "0"),
        (".5", "500m"),
        ("5.", "5"),
        ("1n", "1n"),
        ("0.1n", "1n"),
    ],
)
def test_canonical_spelling(given_text: str, canonical: str) -> None:
    assert quantity.canonical(given_text) == canonical


@pytest.mark.parametrize("text", ["", "lots", "1gi", "5 Gi", "1Ki5", "Ei", "1e", "0x10", "1.2.3"])
def test_what_is_no_quantity_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(
        quantity.QuantityError, match="quantities must match the regular expression"
    ):
        quantity.canonical(text)


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_spelling_keeps_the_value_and_is_stable(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    written = quantity.canonical(text)
    assert quantity.canonical(written) == written
    assert quantity.value_of(written) == min(quantity.value_of(text), Decimal(2**63 - 1))
