"""By what a group sums its gradients: pure, from what its members say of their devices.

NCCL is for groups in which every member has GPUs to itself: two ranks on one GPU it refuses (its
check, ``Duplicate GPU detected``, compares machine and PCI address, so two MIG slices of one GPU
are one to it as well), and a member without a GPU has no part in it. gloo carries such groups,
through the memory of the hosts. All members must take the same, so the group's first member decides
for all and says so; members of a release before this said nothing and each went by its own devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

CUDA: Final = "cuda"
MAX_DEVICES: Final = 64
_MAX_TEXT: Final = 200


class Backend(StrEnum):
    """What carries the gradients of a group."""

    GLOO = "gloo"
    NCCL = "nccl"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that holds gradients of a member."""

    kind: str
    """As PyTorch calls it: ``cpu``, ``cuda``."""
    uuid: str = ""
    """Of a GPU, or of a slice of one; empty: not known."""
    place: str = ""
    """Machine and PCI address of a GPU, or machine and index; empty: not known."""

    def shares_gpu_with(self, other: Device) -> bool:
        """Whether both are the same GPU, or are slices of it."""
        if self.kind != CUDA or other.kind != CUDA:
            return False
        same_uuid = bool(self.uuid) and self.uuid == other.uuid
        return same_uuid or (bool(self.place) and self.place == other.place)

    def __str__(self) -> str:
        return self.uuid or self.place or self.kind


@dataclass(frozen=True, slots=True)
class Equipment:
    """What one member sums its gradients with."""

    devices: tuple[Device, ...]
    """All that hold gradients, each once."""
    nccl: bool
    """Whether its PyTorch has NCCL."""

    @property
    def has_gpu(self) -> bool:
        """Whether any of its gradients are on a GPU."""
        return any(device.kind == CUDA for device in self.devices)

    @property
    def all_on_gpus(self) -> bool:
        """Whether all of its gradients are on GPUs."""
        return bool(self.devices) and all(device.kind == CUDA for device in self.devices)

    def alone(self) -> Backend:
        """What a member takes that hears nothing of the others."""
        return Backend.NCCL if self.has_gpu and self.nccl else Backend.GLOO

    def as_message(self) -> dict[str, Any]:
        """In plain values, for the other members."""
        return {"devices": [[d.kind, d.uuid, d.place] for d in self.devices], "nccl": self.nccl}

    @classmethod
    def from_message(cls, message: object) -> Self | None:
        """What another member says; None: nothing, or nothing that this release understands."""
        if not isinstance(message, Mapping):
            return None
        listed, nccl = message.get("devices"), message.get("nccl")
        if not isinstance(listed, list) or not isinstance(nccl, bool) or len(listed) > MAX_DEVICES:
            return None
        devices = []
        for entry in listed:
            if not isinstance(entry, list) or len(entry) != 3:
                return None
            if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in entry):
                return None
            devices.append(Device(*entry))
        return cls(tuple(devices), nccl)


@dataclass(frozen=True, slots=True)
class Choice:
    """By what a group sums, and what there is to say about it."""

    backend: Backend
    warning: str = ""


def choose(members: Mapping[int, Equipment | None]) -> Choice:
    """What a group sums its gradients by.

    Args:
        members: by worker, the group's first member first; None: it is of a release before this.
    """
    first = next(iter(members.values()))
    known = {rank: member for rank, member in members.items() if member is not None}
    if len(known) < len(members):
        return Choice(first.alone() if first is not None else Backend.GLOO)
    if not any(member.has_gpu for member in known.values()):
        return Choice(Backend.GLOO)
    if why := _obstacle(known):
        return Choice(Backend.GLOO, f"gradients are summed by gloo and not by NCCL: {why}")
    return Choice(Backend.NCCL)


def _obstacle(members: Mapping[int, Equipment]) -> str:
    if without := [rank for rank, member in members.items() if not member.has_gpu]:
        return f"{_workers(without)} no GPU, as the others have"
    if mixed := [rank for rank, member in members.items() if not member.all_on_gpus]:
        return f"{_workers(mixed)} gradients on the CPU beside those on a GPU"
    if lacking := [rank for rank, member in members.items() if not member.nccl]:
        return f"{_workers(lacking)} a PyTorch without NCCL"
    shared = _shared_gpus(members)
    return "; ".join(f"workers {_and(ranks)} share one GPU, {gpu}" for gpu, ranks in shared)


def _shared_gpus(members: Mapping[int, Equipment]) -> list[tuple[Device, list[int]]]:
    """Each GPU that several workers have, and these workers."""
    gpus: list[tuple[Device, list[int]]] = []
    for rank, member in members.items():
        for device in member.devices:
            for known, ranks in gpus:
                if known.shares_gpu_with(device):
                    ranks.append(rank)
                    break
            else:
                gpus.append((device, [rank]))
    shared = [(gpu, sorted(set(ranks))) for gpu, ranks in gpus]
    return [(gpu, ranks) for gpu, ranks in shared if len(ranks) > 1]


def _workers(ranks: Sequence[int]) -> str:
    return f"worker {ranks[0]} has" if len(ranks) == 1 else f"workers {_and(sorted(ranks))} have"


def _and(ranks: Sequence[int]) -> str:
    *before, last = map(str, ranks)
    return f"{', '.join(before)} and {last}" if before else last
