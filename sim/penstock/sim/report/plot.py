"""Pictures of results, drawn with matplotlib where it is installed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.sim.errors import SimulationError


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a picture; `deviation` draws a band of that half-width around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    deviation: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels side by side to a file, whose suffix says the format.

    Raises:
        SimulationError: matplotlib is not installed, or cannot write such a file.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise SimulationError(
            "--plot needs matplotlib: install penstock[sim], or leave --plot out"
        ) from None
    figure = Figure(figsize=(6.0 * len(panels), 4.2), layout="constrained")
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        for curve in panel.curves:
            (line,) = axes.plot(curve.x, curve.y, label=curve.label)
            if curve.deviation:
                low = [y - d for y, d in zip(curve.y, curve.deviation, strict=True)]
                high = [y + d for y, d in zip(curve.y, curve.deviation, strict=True)]
                axes.fill_between(curve.x, low, high, color=line.get_color(), alpha=0.15)
        axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise SimulationError(f"cannot write the picture {path}: {error}") from None
