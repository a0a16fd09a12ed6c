"""The losses of every rule as one picture: how many jobs stay within how much of the best ratio."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from penstock.sim.offload.experiment import Losses
from penstock.sim.report.plot import Curve, Panel, draw

WORST_DRAWN: Final = 0.6
_QUANTILES: Final = np.linspace(0.0, 1.0, 201)


def draw_losses(found: Losses, path: Path) -> None:
    """Draw the cumulative distribution of each rule.

    Raises:
        SimulationError: matplotlib is not installed, or cannot write such a file.
    """
    curves = []
    for rule, values in found.items():
        losses = np.minimum(np.quantile(values, _QUANTILES), WORST_DRAWN)
        curves.append(Curve(rule, [float(one) for one in losses], list(_QUANTILES)))
    draw([Panel("Loss against the best ratio", "loss", "share of the jobs", curves)], path)
