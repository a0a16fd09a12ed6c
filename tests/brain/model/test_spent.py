"""What pods were given and used adds up exactly, and costs what the prices say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.base.enums import Role
from penstock.brain.configuration import ConfigurationError, PriceSettings, load
from penstock.brain.model import spent
from penstock.brain.model.prices import priced
from penstock.brain.model.rollups import Rollup, merge, of_sample
from penstock.brain.model.spent import GIB, Spent
from penstock.brain.rank_columns import RankColumns, pack

PRICES = PriceSettings(core_hour=0.04, gib_hour=0.005, accelerator_hour=2.5)


def columns(ranks: int, *, used: int = 500, limit: int | None = 2000) -> RankColumns:
    """Pods that have 2 cores, 4 GiB and 2 GPUs, and use a quarter of the first two."""
    return {
        "rank": list(range(ranks)),
        "milli_cpu": [used] * ranks,
        "milli_cpu_limit": [limit] * ranks,
        "memory_bytes": [GIB] * ranks,
        "memory_limit_bytes": [4 * GIB] * ranks,
        "gpus": [2] * ranks,
        "gpu_utilization": [0.75] * ranks,
    }


def test_what_was_requested_and_not_used_is_idle() -> None:
    one = spent.of_columns(columns(3), 10.0)
    assert one == Spent(30.0, 60.0, 45.0, 120.0, 90.0, 60.0, 15.0)
    amount = priced(one, PRICES)
    assert amount is not None
    assert amount.cost == pytest.approx((60 * 0.04 + 120 * 0.005 + 60 * 2.5) / 3600)
    assert amount.idle == pytest.approx((45 * 0.04 + 90 * 0.005 + 15 * 2.5) / 3600)
    assert priced(one, None) is None


def test_a_pod_without_a_request_is_taken_at_what_it_used() -> None:
    one = spent.of_columns(columns(1, limit=None), 10.0)
    assert (one.core_seconds, one.idle_core_seconds) == (5.0, 0.0)


def test_a_pod_that_bursts_is_not_idle_below_nothing() -> None:
    assert spent.of_columns(columns(1, used=2500), 10.0).idle_core_seconds == 0


def test_minutes_of_samples_of_any_length_add_up_to_what_the_nodes_gave() -> None:
    """A day of a job that changes its size, against the seconds that its pods were there."""
    rng = np.random.default_rng(1)
    minutes: list[Rollup] = []
    pod_seconds = core_seconds = 0.0
    for _ in range(300):
        parts = []
        for _ in range(int(rng.integers(1, 20))):
            seconds, ranks = float(rng.uniform(1, 15)), int(rng.integers(1, 30))
            limit = int(rng.integers(1, 32)) * 500
            pod_seconds += ranks * seconds
            core_seconds += ranks * seconds * limit / 1000
            parts.append(rollup({Role.WORKER: columns(ranks, limit=limit)}, seconds))
        minute = merge(parts)
        minutes.append(replace(minute, spent=spent.load(spent.dump(minute.spent))))
    tens = [merge(minutes[start : start + 10]) for start in range(0, len(minutes), 10)]
    for rows in (minutes, tens):
        found = spent.total(row.spent["worker"] for row in rows)
        assert found.pod_seconds == pytest.approx(pod_seconds, rel=1e-5)
        assert found.core_seconds == pytest.approx(core_seconds, rel=1e-5)


def test_what_was_stored_before_there_were_bills_is_read() -> None:
    assert spent.load(None) == {}


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({"core_hour": 0.04}, "prices.gib_hour"),
        ({"core_hour": -1, "gib_hour": 0, "accelerator_hour": 0}, "prices.core_hour = -1"),
        ({"core_hour": "cheap", "gib_hour": 0, "accelerator_hour": 0}, "prices.core_hour"),
        ({"core_hour": 0, "gib_hour": 0, "accelerator_hour": 0, "disk": 1}, "prices.disk"),
    ],
)
def test_prices_that_are_missing_or_negative_are_refused(
    prices: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(None, {f"prices.{name}": value for name, value in prices.items()})


def rollup(roles: dict[Role, RankColumns], seconds: float) -> Rollup:
    return of_sample(
        seconds=seconds,
        step=1,
        epoch=0,
        steps_per_second=1.0,
        samples_per_second=1.0,
        world_size=1,
        received_seconds=0.0,
        ranks=pack(roles),
    )
