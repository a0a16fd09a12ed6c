"""How many cores this pod may use: what quota and affinity leave of the machine's.

``os.cpu_count`` knows neither, so that a program in a pod of 4 cores starts as many workers as a
node has cores.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.data.cgroups import PROC, ROOT, folders_v1, folders_v2, lines, number


def usable_cores(root: Path = ROOT, proc: Path = PROC) -> float:
    """Cores, not always whole; those of the machine where nothing limits them."""
    try:
        least = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # another system than Linux
        least = float(os.cpu_count() or 1)
    for folder in folders_v2(root, proc):
        for line in lines(folder / "cpu.max")[:1]:
            quota, _, period = line.partition(" ")
            if quota.isdecimal() and period.strip().isdecimal():
                least = _less(least, int(quota), int(period))
    for folder in folders_v1(root, proc, "cpu"):
        quota_us = number(folder / "cpu.cfs_quota_us")
        period_us = number(folder / "cpu.cfs_period_us")
        if quota_us is not None and period_us is not None:
            least = _less(least, quota_us, period_us)
    return least


def _less(least: float, quota: int, period: int) -> float:
    return min(least, quota / period) if quota > 0 and period > 0 else least
