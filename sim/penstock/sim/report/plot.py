"""Pictures of results, drawn with matplotlib where it is installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.sim.errors import SimulationError

PANELS_PER_ROW: Final = 3
MOST_MARKED: Final = 12
"""Points of a curve that are marked one by one; between them nothing was computed."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a picture; `deviation` draws a band of that half-width around it.

    What others published, or what is to be reached, is drawn dashed (a cross, where it is a single
    point), in the colour of our curve of the name in `beside`.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    deviation: Sequence[float] = ()
    beside: str | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]


def check(path: Path) -> None:
    """See that a picture can be drawn, before the figures are made that it is to show.

    Raises:
        SimulationError: matplotlib is not installed, it has no such format, or there is no folder.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ModuleNotFoundError:
        raise SimulationError(
            "--plot needs matplotlib: install penstock[sim], or leave --plot out"
        ) from None
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix.removeprefix(".").lower() not in formats:
        raise SimulationError(
            f"cannot write the picture {path}: the suffix says the format, one of "
            f"{', '.join(sorted(formats))}"
        )
    if not path.absolute().parent.is_dir():
        raise SimulationError(
            f"cannot write the picture {path}: there is no folder {path.absolute().parent}"
        )


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels, three in a row, to a file whose suffix says the format.

    Raises:
        SimulationError: as `check`, or the file cannot be written.
    """
    check(path)
    from matplotlib.figure import Figure

    columns = max(1, min(PANELS_PER_ROW, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    figure = Figure(figsize=(6.0 * columns, 4.2 * rows), layout="constrained")
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, index + 1)
        colours: dict[str, str] = {}
        for curve in panel.curves:
            if curve.beside is not None:
                mark = (
                    {"marker": "x", "markersize": 9} if len(curve.x) == 1 else {"linestyle": "--"}
                )
                colour = colours.get(curve.beside, "black")
                axes.plot(curve.x, curve.y, label=curve.label, color=colour, **mark)
                continue
            colour = colours.setdefault(curve.label, f"C{len(colours) % 10}")
            marker = "o" if len(curve.x) <= MOST_MARKED else None
            axes.plot(curve.x, curve.y, label=curve.label, color=colour, marker=marker)
            if curve.deviation:
                low = [y - d for y, d in zip(curve.y, curve.deviation, strict=True)]
                high = [y + d for y, d in zip(curve.y, curve.deviation, strict=True)]
                axes.fill_between(curve.x, low, high, color=colour, alpha=0.15)
        axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise SimulationError(f"cannot write the picture {path}: {error}") from None
