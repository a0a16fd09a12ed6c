"""The map of nodes as shapes: one cell for each node, and each node over time. Pure.

Red: accelerators will strand there for want of CPU. Blue: CPU will strand. Colour never stands
alone: each cell has its figure, and its sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api.page.axis import Scale, Tick, time_label, time_ticks

MOST_NODES: Final = 1000
HEAT_NODES: Final = 40
_CELL: Final = 44
_GAP: Final = 4
_WIDTH: Final = 960
_ROW: Final = 14
_LEVELS: Final = 6
_EVEN: Final = 0.05
"""Less than this is not worth a colour."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node."""

    name: str
    fragmentation: float
    free_cores: float
    cores: float
    free_accelerators: float
    accelerators: float
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A node's square."""

    node: NodeState
    x: int
    y: int
    shade: str
    figure: str
    title: str


@dataclass(frozen=True, slots=True)
class NodeMap:
    """Everything that the template draws."""

    cells: Sequence[Cell]
    width: int
    height: int
    left_out: int
    size: int = _CELL


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One node at one moment."""

    x: float
    width: float
    shade: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One node over time."""

    name: str
    y: int
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Fragmentation of some nodes over time."""

    rows: Sequence[HeatRow]
    ticks: Sequence[Tick]
    width: int
    height: int
    left: int
    left_out: int
    row: int = _ROW


def shade(fragmentation: float) -> str:
    """The CSS class of a value: ``gpu1`` to ``gpu5``, ``cpu1`` to ``cpu5``, or ``even``."""
    if abs(fragmentation) < _EVEN:
        return "even"
    level = min(_LEVELS - 1, math.ceil(abs(fragmentation) * (_LEVELS - 1) - 1e-9))
    return f"{'gpu' if fragmentation < 0 else 'cpu'}{level}"


def node_map(nodes: Sequence[NodeState]) -> NodeMap | None:
    """The map, by name; None where there are no nodes."""
    if not nodes:
        return None
    shown = sorted(nodes, key=lambda node: node.name)[:MOST_NODES]
    across = _WIDTH // (_CELL + _GAP)
    cells = [
        Cell(
            node=node,
            x=index % across * (_CELL + _GAP),
            y=index // across * (_CELL + _GAP),
            shade=shade(node.fragmentation),
            figure=f"{round(node.fragmentation, 2) + 0.0:+.2f}".replace("-", "\N{MINUS SIGN}"),
            title=_title(node),
        )
        for index, node in enumerate(shown)
    ]
    rows = math.ceil(len(shown) / across)
    return NodeMap(cells, _WIDTH, rows * (_CELL + _GAP), len(nodes) - len(shown))


def heat_map(history: Sequence[tuple[float, Mapping[str, float]]]) -> HeatMap | None:
    """Nodes over time, those that strand most first; None with fewer than two moments."""
    if len(history) < 2:
        return None
    names = {name for _, nodes in history for name in nodes}
    worst = sorted(
        names, key=lambda name: (-sum(abs(nodes.get(name, 0)) for _, nodes in history), name)
    )
    left = 150
    times = [moment for moment, _ in history]
    span = times[-1] - times[0]
    across = Scale(times[0], times[-1] + span / len(times), left, _WIDTH)
    shown = worst[:HEAT_NODES]
    rows = []
    for index, name in enumerate(shown):
        cells = []
        for position, (moment, nodes) in enumerate(history):
            if name in nodes:
                end = times[position + 1] if position + 1 < len(times) else across.high
                x = across.at(moment)
                cells.append(HeatCell(x, round(across.at(end) - x, 1), shade(nodes[name])))
        rows.append(HeatRow(name, index * _ROW, cells))
    ticks = [
        Tick(across.at(moment), time_label(moment, span))
        for moment in time_ticks(times[0], times[-1])
    ]
    return HeatMap(rows, ticks, _WIDTH, len(shown) * _ROW + 24, left, len(names) - len(shown))


def _title(node: NodeState) -> str:
    text = f"{node.name}: {node.free_cores:g} of {node.cores:g} cores free"
    if node.accelerators:
        text += f", {node.free_accelerators:g} of {node.accelerators:g} accelerators free"
    if node.fragmentation < 0:
        text += "; accelerators strand for want of CPU"
    elif node.fragmentation > 0 and node.accelerators:
        text += "; CPU strands"
    return text + ("; cordoned" if node.cordoned else "")
