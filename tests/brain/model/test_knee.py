"""Which numbers of workers make all of a speed that more do not raise, by all that was measured."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.brain.model.knee import chances

COUNTS = [1, 2, 4, 8, 16]


def judge(speeds: dict[int, float], error: float = 0.011) -> dict[int, float]:
    workers = sorted(speeds)
    made = [speeds[count] for count in workers]
    return dict(
        chances(workers, made, [error * speed for speed in made], range(1, workers[-1] + 4), 0.02)
    )


def bounded(count: int, level: float, serial: float = 0.0) -> float:
    return min(10 * count / (1 + serial * (count - 1)), level)


@pytest.mark.parametrize("level", [95.0, 110.0, 125.0, 140.0])
@pytest.mark.parametrize("serial", [0.0, 0.01])
def test_the_least_number_for_a_level_is_likely_and_much_less_is_not(
    level: float, serial: float
) -> None:
    chance = judge({count: bounded(count, level, serial) for count in (*COUNTS, 32)}, error=0.004)
    least = next(n for n in range(1, 33) if bounded(n, level, serial) >= 0.98 * level)
    assert chance[least + 1] > 0.5
    assert all(chance[n] < 0.05 for n in range(1, round(0.9 * least)))
    assert chance[32] == pytest.approx(1)
    assert chance[33] == 0, "nothing is known beyond what was measured"


def test_workers_that_pay_ever_less_are_no_level() -> None:
    chance = judge({count: count / (1 + 0.1 * (count - 1)) for count in COUNTS})
    assert all(chance[n] < 0.5 for n in range(1, 15))


def test_a_number_that_was_seen_to_make_less_is_not_enough_whatever_the_others_promise() -> None:
    """A level may be reached little by little: the workers below it then wait for it, too."""
    chance = judge({1: 10, 2: 20, 4: 40, 8: 80, 12: 100, 16: 110})
    assert chance[12] < 0.05
    assert chance[15] > 0.5


def test_what_is_known_badly_is_judged_so() -> None:
    """A worker too few makes 4 % less than the level: three noisy samples cannot say so."""
    speeds = {count: bounded(count, 125.0) for count in COUNTS}
    sure, unsure = judge({**speeds, 12: 120}, error=0.008), judge({**speeds, 12: 120}, error=0.04)
    assert sure[12] < 0.1 < unsure[12] < 0.9


def test_chances_grow_with_the_number_where_workers_slow_nothing_down() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        level, serial = rng.uniform(25, 150), rng.uniform(0, 0.1)
        noisy = {n: bounded(n, level, serial) * float(rng.lognormal(0, 0.03)) for n in COUNTS}
        chance = list(judge(noisy, error=0.03).values())[: COUNTS[-1]]
        assert chance == pytest.approx(sorted(chance))


def test_one_number_tells_nothing() -> None:
    with pytest.raises(ValueError, match="at least two"):
        chances([4], [40.0], [1.0], [4], 0.02)
    with pytest.raises(ValueError, match="as many of each"):
        chances([2, 4], [40.0], [1.0], [4], 0.02)
