"""What is reported of a device, from what NVML says of it and of its processes: pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.job.protocol import GpuUsage

WINDOW_SECONDS: Final = 5.0
"""Utilisation and power are means over this: longer than the trainer's interval between samples, so
that no moment goes unseen, and shorter than what a plan waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """What NVML says of one device at one moment; None: it does not say.

    ``process_memory_bytes`` and ``process_utilization`` are by process id. NVML may know processes
    by the ids of another namespace, or none at all.
    """

    uuid: str
    utilization: float | None = None
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    process_memory_bytes: Mapping[int, int | None] = field(default_factory=dict)
    process_utilization: Mapping[int, float] | None = None


def own_use(reading: DeviceReading, pids: Collection[int]) -> GpuUsage:
    """The part of a device that the program uses, where NVML tells it apart; else the whole.

    Power is the device's. Where none of the program's processes is known, others may be at work on
    the device, or it may be the program under process ids of another namespace: the whole, too.
    """
    everyone = reading.process_memory_bytes
    own = [pid for pid in everyone if pid in pids]
    utilization, memory = reading.utilization, reading.memory_bytes
    if own:
        held = [everyone[pid] for pid in own]
        known = [each for each in held if each is not None]
        if len(known) == len(held):
            memory = sum(known)
        if len(own) < len(everyone) and reading.process_utilization is not None:
            utilization = math.fsum(reading.process_utilization.get(pid, 0.0) for pid in own)
    return GpuUsage(
        uuid=reading.uuid,
        utilization=None if utilization is None else min(1.0, max(0.0, utilization)),
        memory_bytes=memory,
        memory_total_bytes=reading.memory_total_bytes,
        power_watts=reading.power_watts,
    )


@dataclass(frozen=True, slots=True)
class TimedUse:
    """What all devices were used for at one moment."""

    time: float
    devices: tuple[GpuUsage, ...]


def averaged(readings: Sequence[TimedUse], now: float) -> tuple[GpuUsage, ...]:
    """The devices of the newest reading, their utilisation and power as means of the window.

    Nothing where the newest is older than the window: whoever read them has stopped or hangs.
    """
    recent = [each for each in readings if now - each.time <= WINDOW_SECONDS]
    if not recent:
        return ()
    found = []
    for device in recent[-1].devices:
        same = [one for each in recent for one in each.devices if one.uuid == device.uuid]
        found.append(
            device.model_copy(
                update={
                    "utilization": _mean([one.utilization for one in same]),
                    "power_watts": _mean([one.power_watts for one in same]),
                }
            )
        )
    return tuple(found)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
