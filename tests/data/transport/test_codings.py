"""Which codings a connection may use: by what the job says and what both ends know."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.enums import Compression
from penstock.data.transport.codings import (
    INSTALL,
    Allowed,
    Coding,
    allow,
    read_allowed,
    read_offer,
)

BOTH = (Coding.DICTIONARY, Coding.ZSTD)
ONE = (Coding.DICTIONARY,)


@pytest.mark.parametrize("here", [BOTH, ONE, ()])
@pytest.mark.parametrize("there", [BOTH, ONE, ()])
def test_none_switches_all_off(here: Any, there: Any) -> None:
    assert allow(Compression.NONE, here, there) == (Allowed(()), "")


def test_auto_is_what_both_know() -> None:
    assert allow(Compression.AUTO, BOTH, BOTH) == (Allowed(BOTH), "")
    assert allow(Compression.AUTO, ONE, BOTH) == (Allowed(ONE), "")
    assert allow(Compression.AUTO, BOTH, ONE) == (Allowed(ONE), "")
    assert allow(Compression.AUTO, BOTH, ()) == (Allowed(()), "")


def test_zstd_is_always_and_its_absence_is_told() -> None:
    assert allow(Compression.ZSTD, BOTH, BOTH) == (Allowed((Coding.ZSTD,), always=True), "")
    for here, there, who in ((ONE, BOTH, "this process"), (BOTH, ONE, "a data worker")):
        allowed, problem = allow(Compression.ZSTD, here, there)
        assert allowed == Allowed(())
        assert who in problem
        assert INSTALL in problem


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (["zstd", "dictionary", "of tomorrow"], BOTH),
        (["zstd"], (Coding.ZSTD,)),
        ([], ()),
        (None, ()),
        ("zstd", ()),
        ({"zstd": 1}, ()),
        ([["zstd"], 7, b"zstd"], ()),
        (["zstd"] * 100, ()),
    ],
)
def test_an_offer_is_read_or_passed_over(said: object, read: tuple[Coding, ...]) -> None:
    assert read_offer(said) == read


def test_what_is_allowed_survives_the_way() -> None:
    for allowed in (Allowed(()), Allowed(BOTH), Allowed((Coding.ZSTD,), always=True)):
        names = [str(one) for one in allowed.codings]
        assert read_allowed(names, allowed.always) == allowed
    assert read_allowed(["dictionary", "zstd"], True) == Allowed(BOTH), "always is for one"
    assert read_allowed(["zstd"], "yes") == Allowed((Coding.ZSTD,))
