"""Penstock and its embedded cluster each read quantities, and read them alike."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base import quantity as ours
from penstock_cluster import quantity as theirs

NUMBERS = st.from_regex(r"[+-]?([0-9]{1,8}(\.[0-9]{0,8})?|\.[0-9]{1,8})", fullmatch=True)
SUFFIXES = st.sampled_from(["", *"numkMGTPE", *(f"{one}i" for one in "KMGTPE"), "e3", "E-30", "x"])


def outcome(parse: Callable[[str], int], text: str) -> int | str:
    try:
        return parse(text)
    except ValueError as error:
        return str(error)


@given(st.builds("{}{}".format, NUMBERS, SUFFIXES) | st.text(max_size=40))
@example("1e99999999999")
@example("9" * 33)
def test_both_read_the_same(text: str) -> None:
    assert outcome(ours.parse_milli_cpu, text) == outcome(theirs.parse_milli_cpu, text)
    assert outcome(ours.parse_bytes, text) == outcome(theirs.parse_bytes, text)


@given(st.integers(0, 2**63 - 1))
def test_both_write_the_same(amount: int) -> None:
    assert ours.format_milli_cpu(amount) == theirs.format_milli_cpu(amount)
    assert ours.format_bytes(amount) == theirs.format_bytes(amount)
