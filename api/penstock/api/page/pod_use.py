"""What the pods of a job use, in words: a line for each role, GPUs where some pod reports any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Role
from penstock.wire.samples import RoleUse

_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class UseLine:
    """The pods of one role; the last four are empty where no GPU is reported."""

    role: str
    pods: int
    cpu: str
    hottest_cpu: str
    memory: str
    wait: str
    gpus: str = ""
    gpu_utilization: str = ""
    gpu_memory: str = ""
    gpu_power: str = ""


def use_lines(roles: Mapping[Role, RoleUse]) -> Sequence[UseLine]:
    """A line for each role, in the order of roles."""
    return [_line(role, roles[role]) for role in Role if role in roles]


def _line(role: Role, use: RoleUse) -> UseLine:
    return UseLine(
        role=role.value,
        pods=use.replicas,
        cpu=f"{use.cpu_cores:.1f}",
        hottest_cpu=f"{use.hottest_cpu_cores:.1f}",
        memory=_gib(use.peak_memory_bytes),
        wait="" if use.wait_share is None else f"{use.wait_share:.0%}",
        gpus="" if use.gpus is None else str(use.gpus),
        gpu_utilization="" if use.gpu_utilization is None else f"{use.gpu_utilization:.0%}",
        gpu_memory=_gpu_memory(use),
        gpu_power="" if use.gpu_power_watts is None else f"{use.gpu_power_watts:,.0f} W",
    )


def _gpu_memory(use: RoleUse) -> str:
    if use.gpu_memory_bytes is None:
        return ""
    if use.gpu_memory_total_bytes is None:
        return _gib(use.gpu_memory_bytes)
    return f"{_gib(use.gpu_memory_bytes)} of {_gib(use.gpu_memory_total_bytes)}"


def _gib(count: float) -> str:
    return f"{count / _GIB:.1f} GiB"
