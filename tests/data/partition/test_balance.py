"""Of which batches local workers make what moves: all, none, or as many as both have time for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.partition.balance import FULL, SWING, Balance

COUNTS = st.lists(st.integers(1, 16), min_size=1, max_size=30)


def divided(balance: Balance, counts: list[int], ready: int, ahead: int = 64) -> list[bool]:
    """Of each step whether all of it is to be made."""
    found: dict[int, bool] = {}
    for count in counts:
        steps = [(len(found) + number, None) for number in range(count)]
        whole, plain = balance.divide(steps, ready=ready, ahead=ahead)
        assert sorted(whole + plain, key=lambda one: one[0]) == steps
        found |= {step: True for step, _ in whole} | {step: False for step, _ in plain}
    return [found[step] for step in range(len(found))]


@given(COUNTS, st.integers(0, 80), st.integers(1, 64), st.floats(0, 1.25))
def test_the_share_is_the_lasting_part_and_what_waits(
    counts: list[int], ready: int, ahead: int, lasting: float
) -> None:
    moved = sum(divided(Balance(lasting=lasting), counts, ready, ahead))
    fullness = min(1.0, ready / max(1, min(FULL, ahead // 2)))
    share = min(1.0, max(0.0, lasting + SWING * (fullness - 0.5)))
    assert abs(moved - share * sum(counts)) < 1 + 1e-6


@given(st.lists(st.sampled_from(["waited", "idle", "both", ""]), max_size=300))
def test_waiting_makes_it_less_and_idle_workers_more(seen: list[str]) -> None:
    balance = Balance()
    for one in seen:
        before = balance.lasting
        balance.took(waited=one in ("waited", "both"), idle=one in ("idle", "both"))
        assert 0 <= balance.lasting <= 1 + SWING / 2
        assert (balance.lasting <= before) if one != "idle" else (balance.lasting >= before)
    for _ in range(100):
        balance.took(waited=True, idle=False)
    assert not any(divided(balance, [16, 16], 0))
    for _ in range(100):
        balance.took(waited=False, idle=True)
    assert all(divided(balance, [16, 16], 0))


@given(COUNTS, st.integers(0, 80), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_a_share_that_is_forced_is_kept_and_evenly_spread(
    counts: list[int], ready: int, share: float
) -> None:
    chosen = divided(Balance(share), counts, ready)
    for step in range(len(chosen) + 1):
        assert abs(sum(chosen[:step]) - share * step) < 1


def seconds_of_an_epoch(
    balance: Balance,
    training: tuple[float, float],
    worker: tuple[float, float],
    steps: int,
    credits_: int,
) -> float:
    """How long a training and one worker take, from the first batch on.

    Each pair is of a step with what moves made elsewhere, and here; of a batch without it, and with
    it. A worker is asked for more when half of what it was asked for is made, as local ones are.
    """
    ahead, born = 64, 20.0
    waiting: list[tuple[float, bool]] = []  # when a batch is there, and whether all of it was made
    free_at, now, asked, taken = born, 0.0, 0, 0
    while taken < steps:
        unmade = sum(at > now for at, _ in waiting)
        if taken:
            balance.took(waited=len(waiting) == unmade, idle=not unmade)
        most = credits_ if taken else 2
        room = min(most - unmade, ahead - len(waiting), steps - asked)
        if 2 * unmade <= most and room > 0:
            wanted = [(asked + number, None) for number in range(room)]
            whole, plain = balance.divide(wanted, ready=len(waiting) - unmade, ahead=ahead)
            asked += room
            for moved in [False] * len(plain) + [True] * len(whole):
                free_at = max(free_at, now) + worker[moved]
                waiting.append((free_at, moved))
        there, moved = waiting.pop(0)
        now = max(now, there) + training[not moved]
        taken += 1
    return now - born - min(worker)


@pytest.mark.parametrize("credits_", [4, 10, 16])
@pytest.mark.parametrize("steps", [30, 60, 300])
@pytest.mark.parametrize(
    ("training", "worker"),
    [
        ((4.0, 10.0), (2.0, 10.0)),  # the worker would become what is waited for
        ((3.0, 5.0), (4.0, 6.5)),  # hardly anything is worth moving
        ((2.0, 10.0), (1.0, 1.5)),  # all of it
        ((4.0, 5.0), (6.0, 9.0)),  # nothing: the worker is what is waited for
    ],
)
def test_both_take_as_long_after_some_epochs_and_never_longer_than_without(
    training: tuple[float, float], worker: tuple[float, float], steps: int, credits_: int
) -> None:
    moved, whole = training
    plain, more = worker[0], worker[1] - worker[0]
    shares = [number / 1000 for number in range(1001)]
    best = min(max(whole - one * (whole - moved), plain + one * more) for one in shares)
    balance = Balance()
    took = [
        seconds_of_an_epoch(balance, training, worker, steps, credits_) / steps for _ in range(20)
    ]
    assert sum(took[10:]) / 10 <= best / 0.94
    never = Balance(forced=0.0)
    alone = seconds_of_an_epoch(never, training, worker, steps, credits_) / steps
    assert max(took) <= alone / 0.97
