"""What shows in one sample."""

from __future__ import annotations

import pytest

from penstock.base.enums import Role, Trigger
from penstock.brain.symptoms import detect


def servers(*shares: float, memory: float = 0.1) -> dict[Role, dict[str, list[object]]]:
    count = len(shares)
    return {
        Role.PS: {
            "rank": list(range(count)),
            "milli_cpu": [share * 16_000 for share in shares],
            "milli_cpu_limit": [16_000] * count,
            "memory_bytes": [memory * 1000] * count,
            "memory_limit_bytes": [1000] * count,
        }
    }


def workers(*seconds: float | None) -> dict[Role, dict[str, list[object]]]:
    return {
        Role.WORKER: {
            "rank": list(range(len(seconds))),
            "milli_cpu": [1000] * len(seconds),
            "memory_bytes": [1] * len(seconds),
            "step_seconds": list(seconds),
        }
    }


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ({}, ()),
        (servers(0.5, 0.79), ()),
        (servers(0.5, 0.81), (Trigger.HOT_SERVER,)),
        (servers(0.5, memory=0.95), (Trigger.HOT_SERVER,)),
        (servers(0.2, 0.3), (Trigger.IDLE_SERVERS,)),
        (servers(0.1, 0.81), (Trigger.HOT_SERVER,)),
        (workers(1.0, 1.0, 1.49), ()),
        (workers(1.0, 1.0, 1.6), (Trigger.STRAGGLER,)),
        (workers(1.0, 9.0), ()),
        (workers(None, None, None), ()),
        ({**workers(1, 1, 9), **servers(0.9)}, (Trigger.STRAGGLER, Trigger.HOT_SERVER)),
    ],
)
def test_symptoms_of_pods(
    roles: dict[Role, dict[str, list[object]]], expected: tuple[Trigger, ...]
) -> None:
    assert detect(roles) == expected


def test_servers_of_unknown_size_show_nothing() -> None:
    roles = servers(0.99)
    del roles[Role.PS]["milli_cpu_limit"]
    assert detect(roles) == ()


def test_an_input_queue_that_runs_dry() -> None:
    assert detect({}, 94.0, 100.0) == (Trigger.DATA_STALL,)
    assert detect({}, 96.0, 100.0) == ()
    assert detect({}, None, 100.0) == ()


def test_a_queue_that_is_emptied_as_fast_as_it_is_filled_stalls_where_more_could_be_taken() -> None:
    assert detect({}, 10.0, 10.0, ideal_per_second=10.2) == ()
    assert detect({}, 10.0, 10.0, ideal_per_second=20.0) == (Trigger.DATA_STALL,)
