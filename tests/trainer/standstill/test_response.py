"""Who is ended for standing still, and who is left: everything has to speak for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import OnHang
from penstock.trainer.standstill.detector import Standing
from penstock.trainer.standstill.response import (
    AGAIN_SECONDS,
    FRESH_SECONDS,
    Hang,
    HangPolicy,
    Step,
    judge,
)
from penstock.trainer.standstill.stack import Kind

RESTART: Final = HangPolicy(OnHang.RESTART, after_seconds=60.0, most=3)
STANDING: Final = Standing(1, 7, idle=100.0, usual=3.0, kind=Kind.WAITS, place=None, at=1000.0)
NOW: Final = 1001.0


def verdict(policy: HangPolicy = RESTART, now: float = NOW, **of_hang: Any) -> Step:
    return judge(replace(Hang(STANDING), **of_hang), policy, now).step


def standing(**fields: Any) -> Standing:
    return replace(STANDING, **fields)


@pytest.mark.parametrize(
    ("kind", "whole_world", "step"),
    [
        (Kind.STOPPED, False, Step.END),
        (Kind.WAITS, False, Step.END),
        (Kind.COLLECTIVE, True, Step.END),
        (Kind.COLLECTIVE, False, Step.LEAVE),
        (Kind.DATA, True, Step.LEAVE),
        (Kind.CHECKPOINT, True, Step.LEAVE),
        (Kind.LOOPS, True, Step.LEAVE),
        (Kind.UNKNOWN, True, Step.LEAVE),
    ],
)
@pytest.mark.parametrize("response", [OnHang.RESTART, OnHang.REPLACE])
def test_kinds(kind: Kind, whole_world: bool, step: Step, response: OnHang) -> None:
    hang = Hang(standing(kind=kind), whole_world=whole_world)
    found = judge(hang, replace(RESTART, response=response), NOW)
    assert found.step is step
    assert bool(found.why) is (step is Step.LEAVE), "who is left is told why"


def test_a_job_that_asks_for_a_report_gets_no_more() -> None:
    assert verdict(HangPolicy()) is Step.LEAVE
    assert not judge(Hang(STANDING), HangPolicy(), NOW).why


def test_it_is_early_until_the_usual_pause_is_exceeded_by_what_the_job_says() -> None:
    one = standing(idle=61.0)
    assert verdict(standing=one) is Step.WAIT
    assert verdict(standing=one, now=one.at + 2.0) is Step.END
    assert verdict(standing=standing(idle=61.0, usual=30.0), now=one.at + 2.0) is Step.WAIT


def test_a_wait_for_a_core_is_no_part_of_it() -> None:
    one = standing(idle=100.0, queued=90.0)
    assert verdict(standing=one) is Step.WAIT
    assert verdict(standing=replace(one, idle=160.0)) is Step.END


def test_what_was_seen_a_while_ago_is_looked_at_again() -> None:
    assert verdict(now=STANDING.at + FRESH_SECONDS + 0.1) is Step.LOOK


def test_who_moves_is_left_and_looked_at_again_later() -> None:
    moving = standing(moves="it reads or writes")
    assert judge(Hang(moving), RESTART, NOW).why == "it reads or writes"
    assert verdict(standing=moving) is Step.LEAVE
    assert verdict(standing=moving, now=STANDING.at + AGAIN_SECONDS) is Step.LOOK


def test_an_agent_of_an_older_release_is_not_told() -> None:
    assert verdict(able=False) is Step.LEAVE


@given(
    kind=st.sampled_from(Kind),
    idle=st.floats(0, 1e6),
    usual=st.floats(0, 1e4),
    seen=st.floats(0, 1000),
    moves=st.sampled_from(["", "it computes"]),
    whole_world=st.booleans(),
    able=st.booleans(),
    ended=st.integers(0, 5),
    failures=st.integers(0, 5),
    most=st.integers(0, 5),
    after=st.floats(1, 86400),
    response=st.sampled_from(OnHang),
)
def test_nobody_is_ended_unless_everything_speaks_for_it(
    kind: Kind,
    idle: float,
    usual: float,
    seen: float,
    moves: str,
    whole_world: bool,
    able: bool,
    ended: int,
    failures: int,
    most: int,
    after: float,
    response: OnHang,
) -> None:
    one = Standing(0, 7, idle, usual, kind, None, at=0.0, moves=moves)
    hang = Hang(one, whole_world=whole_world, able=able, ended=ended, failures=failures)
    if judge(hang, HangPolicy(response, after, most), seen).step is Step.END:
        assert response is not OnHang.REPORT
        assert kind not in (Kind.DATA, Kind.CHECKPOINT, Kind.LOOPS, Kind.UNKNOWN)
        assert kind is not Kind.COLLECTIVE or whole_world
        assert not moves
        assert able
        assert seen <= FRESH_SECONDS
        assert idle + seen >= usual + after
        assert max(ended, failures) < most
