"""Accelerators that are handed out through Dynamic Resource Allocation, counted as any others.

A ResourceSlice publishes the devices that a driver has on a node; the allocation of a ResourceClaim
names those that are taken. A device's kind is its driver, and only drivers of accelerators count.

- Of each pool only the newest generation counts: while a driver publishes anew, there are two.
- Parts of a device (MIG) are not counted beside the device; devices that no single node has, and
  access for administration, which takes nothing, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.scheduler.objects import Amounts

Json = Mapping[str, Any]

ACCELERATOR_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com")
"""Drivers whose devices count as accelerators, unless the caller names others."""


@dataclass(frozen=True, slots=True)
class Devices:
    """By node: the devices that it has, and those that are taken, as amounts of their kinds."""

    there: Mapping[str, Amounts] = field(default_factory=dict)
    taken: Mapping[str, Amounts] = field(default_factory=dict)


def read_devices(
    slices: Iterable[Json], claims: Iterable[Json], drivers: Iterable[str] = ACCELERATOR_DRIVERS
) -> Devices:
    """What the slices publish and the claims take, from their JSON forms."""
    known = frozenset(drivers)
    published = [found for one in slices if (found := one["spec"])["driver"] in known]
    newest: dict[tuple[str, str], int] = {}
    for spec in published:
        pool = (spec["driver"], spec["pool"]["name"])
        newest[pool] = max(newest.get(pool, 0), spec["pool"]["generation"])
    node_of: dict[tuple[str, str, str], str] = {}
    for spec in published:
        driver, pool = spec["driver"], spec["pool"]["name"]
        if spec["pool"]["generation"] < newest[driver, pool]:
            continue
        for device in spec.get("devices") or ():
            node = device.get("nodeName") or spec.get("nodeName")
            if node and not _is_part(device):
                node_of[driver, pool, device["name"]] = node
    taken = {
        device
        for claim in claims
        for result in _results(claim)
        if not result.get("adminAccess")
        and (device := (result["driver"], result["pool"], result["device"])) in node_of
    }
    return Devices(_amounts(node_of), _amounts({one: node_of[one] for one in taken}))


def _results(claim: Json) -> Iterable[Json]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: Iterable[Json] = (allocation.get("devices") or {}).get("results") or ()
    return found


def _is_part(device: Json) -> bool:
    kind = (device.get("attributes") or {}).get("type") or {}
    return kind.get("string") == "mig"


def _amounts(node_of: Mapping[tuple[str, str, str], str]) -> dict[str, Amounts]:
    counts: dict[str, Counter[str]] = {}
    for (driver, _, _), node in node_of.items():
        counts.setdefault(node, Counter())[driver] += 1
    return {
        node: Amounts(accelerators=tuple(sorted(count.items()))) for node, count in counts.items()
    }
