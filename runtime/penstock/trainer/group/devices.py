"""Which GPU a worker computes on, as the other members of its group can compare it.

An index says nothing across pods, each of which counts its own devices from 0; CUDA's UUID of a
device does. Its PCI address with the machine's boot id, which all containers of a machine share,
tells besides that two MIG slices are parts of one GPU.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed

from penstock.trainer.group.backend_choice import CUDA, Device, Equipment

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

Properties = Callable[[torch.device], Any]
"""``torch.cuda.get_device_properties``, or what stands in for it in tests."""


def equipment(
    devices: Iterable[torch.device],
    *,
    nccl: bool | None = None,
    properties: Properties = torch.cuda.get_device_properties,
) -> Equipment:
    """What this worker sums its gradients with, which are on ``devices``."""
    has_nccl = distributed.is_nccl_available() if nccl is None else nccl
    different = dict.fromkeys(devices)
    return Equipment(tuple(_describe(device, properties) for device in different), has_nccl)


def _describe(device: torch.device, properties: Properties) -> Device:
    if device.type != CUDA:
        return Device(device.type)
    found = properties(device)
    uuid = getattr(found, "uuid", None)
    address = [getattr(found, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if None not in address:
        where = ":".join(f"{part:x}" for part in address)
    else:
        where = f"cuda:{device.index or 0}" if uuid is None else ""
    place = f"{_machine()}/{where}" if where else ""
    return Device(device.type, "" if uuid is None else f"GPU-{uuid}", place)


def _machine() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()
