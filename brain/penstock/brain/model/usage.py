"""What a job used over its life, from its samples: what later jobs are planned from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.base.enums import Role
from penstock.brain.model.robust_statistics import tightest_half_mean
from penstock.brain.model.rollups import Rollup
from penstock.brain.planning import RoleUsage
from penstock.brain.rank_columns import unpack


@dataclass(slots=True)
class _Ranks:
    totals: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sums: dict[int, list[float]] = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)
    hottest: list[float] = field(default_factory=list)
    largest: float = 0.0
    together: float = 0.0


def summarize(samples: Iterable[bytes], minutes: Iterable[Rollup] = ()) -> dict[Role, RoleUsage]:
    """Sum up the packed ranks of many samples, and the minutes before them.

    The counts and totals are robust means over the samples, since a job passes through several
    sizes and most of its life is spent at the last; memory is the peak.
    """
    roles: dict[Role, _Ranks] = {}
    for minute in minutes:
        for name, use in minute.roles.items():
            ranks = roles.setdefault(Role(name), _Ranks())
            ranks.totals.append(use.milli_cpu)
            ranks.counts.append(round(use.replicas))
            ranks.hottest.append(use.hottest_milli_cpu)
            ranks.largest = max(ranks.largest, use.peak_memory_bytes)
            ranks.together = max(ranks.together, use.total_memory_bytes)
    for packed in samples:
        for role, columns in unpack(packed).items():
            ranks = roles.setdefault(role, _Ranks())
            cpus = columns["milli_cpu"]
            if not cpus:
                continue
            ranks.totals.append(sum(cpus))
            ranks.counts.append(len(cpus))
            for rank, cpu, memory in zip(
                columns["rank"], cpus, columns["memory_bytes"], strict=True
            ):
                total = ranks.sums.setdefault(rank, [0.0, 0])
                total[0] += cpu
                total[1] += 1
                ranks.peaks[rank] = max(ranks.peaks.get(rank, 0), memory)
    return {role: _usage(ranks) for role, ranks in roles.items() if ranks.totals}


def _usage(ranks: _Ranks) -> RoleUsage:
    replicas = max(1, round(tightest_half_mean(ranks.counts)))
    peaks = sorted(ranks.peaks.values(), reverse=True)[:replicas]
    hottest = [total / count for total, count in ranks.sums.values()]
    if ranks.hottest:
        hottest.append(tightest_half_mean(ranks.hottest))
    return RoleUsage(
        replicas=replicas,
        milli_cpu=tightest_half_mean(ranks.totals),
        hottest_milli_cpu=max(hottest),
        peak_memory_bytes=max(round(ranks.largest), *peaks, 0),
        total_memory_bytes=max(round(ranks.together), sum(peaks)),
    )
