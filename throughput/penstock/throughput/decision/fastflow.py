"""FastFlow's own rule, as a reference to compare with (PVLDB 16(5), Algorithm 1).

Two forms: as the paper prints it, and as the published code decides, which differs
(`docs/papers.md`). Rates are in one unit, whichever; written from the paper's formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAPER_THRESHOLD: Final = 1.1
"""Stalled if Gthp / Lthp is above it (SpeedUpThreshold, 10 %)."""
CODE_THRESHOLD: Final = 1.3


@dataclass(frozen=True, slots=True)
class Metrics:
    """What FastFlow measures before the training (its Table 1).

    Attributes:
        accelerator: Gthp, with the input cached.
        local: Lthp, with everything local.
        remote: Rthp, with everything elsewhere.
        overhead: Ocycle / Pcycle: local cycles with all elsewhere, as a share of those with none.
    """

    accelerator: float
    local: float
    remote: float
    overhead: float


def stalled(metrics: Metrics, threshold: float = PAPER_THRESHOLD) -> bool:
    """Whether anything is moved at all; line 3, read as the ratio that it must mean."""
    return metrics.accelerator / metrics.local > threshold


def paper_ratio(metrics: Metrics) -> float:
    """The share that is made elsewhere, as printed: lines 8 to 14."""
    upper = metrics.remote
    lower = (metrics.accelerator - metrics.local) * (1 + metrics.overhead)
    if lower < upper:
        return _share(upper / metrics.accelerator)
    return _share(metrics.remote / (metrics.local + metrics.remote))


def code_ratio(metrics: Metrics) -> float:
    """The share as the published code has it."""
    g, local, remote = metrics.accelerator, metrics.local, metrics.remote
    lower = (g - local) * (1 + metrics.overhead)
    amount = (remote + lower) / 2 if local > remote else max(remote, lower)
    stays = local / (local + remote) if local + remote < g else (g - amount) / g
    return _share(1 - max(0.0, stays))


def best_cut(local: float, remotes: dict[str, float], overheads: dict[str, float]) -> str:
    """Section 4.2, line 6: the candidate with the greatest ``Lthp (1 - O/P) + Rthp``."""
    return max(remotes, key=lambda name: local * (1 - overheads[name]) + remotes[name])


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
