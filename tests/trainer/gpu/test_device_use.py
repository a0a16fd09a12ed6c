"""What is reported of a device: the program's own part where that is known, and means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.job.protocol import GpuUsage
from penstock.trainer.gpu.device_use import (
    WINDOW_SECONDS,
    DeviceReading,
    TimedUse,
    averaged,
    own_use,
)

DEVICE = DeviceReading(
    uuid="GPU-a", utilization=0.9, memory_bytes=70, memory_total_bytes=80, power_watts=400
)


@pytest.mark.parametrize(
    ("held", "shares", "utilization", "memory"),
    [
        ({}, None, 0.9, 70),  # a program that has not begun, or a driver that does not tell
        ({7: 10, 8: 20}, {7: 0.5}, 0.9, 70),  # of another namespace
        ({1: 30, 2: 10}, None, 0.9, 40),  # nobody else is there
        ({1: 30, 7: 10}, {1: 0.25, 7: 0.5}, 0.25, 30),
        ({1: 30, 2: 10, 7: 10}, {1: 0.75, 2: 0.75}, 1.0, 40),
        ({1: 30, 7: 10}, {7: 0.5}, 0.0, 30),  # it holds memory and computes nothing
        ({1: 30, 7: 10}, None, 0.9, 30),
        ({1: None, 7: 10}, {1: 0.25}, 0.25, 70),
    ],
)
def test_the_part_of_the_program_is_told_where_it_is_known(
    held: dict[int, int | None],
    shares: dict[int, float] | None,
    utilization: float,
    memory: int,
) -> None:
    reading = replace(DEVICE, process_memory_bytes=held, process_utilization=shares)
    own = own_use(reading, {1, 2})
    assert (own.utilization, own.memory_bytes) == (utilization, memory)
    assert (own.memory_total_bytes, own.power_watts) == (80, 400)


def use(busy: float | None, uuid: str = "GPU-a", memory: int = 1) -> GpuUsage:
    watts = None if busy is None else busy * 100
    return GpuUsage(uuid=uuid, utilization=busy, memory_bytes=memory, power_watts=watts)


def test_utilisation_and_power_are_means_of_the_window_and_memory_is_the_newest() -> None:
    readings = [
        TimedUse(0.0, (use(1.0),)),  # too old
        TimedUse(10.0, (use(0.0),)),
        TimedUse(11.0, (use(None), use(0.5, "GPU-b"))),
        TimedUse(12.0, (use(0.5, memory=7), use(1.0, "GPU-b"))),
    ]
    first, second = averaged(readings, 12.5)
    assert (first.utilization, first.power_watts, first.memory_bytes) == (0.25, 25.0, 7)
    assert (second.uuid, second.utilization) == ("GPU-b", 0.75)


def test_what_nobody_reads_any_more_is_not_reported() -> None:
    reading = TimedUse(10.0, (use(0.5),))
    assert averaged([reading], 10 + WINDOW_SECONDS)
    assert averaged([reading], 10.1 + WINDOW_SECONDS) == ()
    assert averaged([], 0.0) == ()


def test_a_device_that_is_gone_is_not_reported() -> None:
    readings = [TimedUse(1.0, (use(0.5), use(0.5, "GPU-b"))), TimedUse(2.0, (use(0.5),))]
    assert [each.uuid for each in averaged(readings, 2.0)] == ["GPU-a"]


def test_what_no_device_tells_stays_unknown() -> None:
    (only,) = averaged([TimedUse(1.0, (use(None),))], 1.0)
    assert (only.utilization, only.power_watts) == (None, None)
