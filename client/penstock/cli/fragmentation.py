"""``penstock fragmentation``: each node over time as a heatmap in the terminal.

The figure of a node is its share of free CPU less its share of free accelerators, as the scheduler
has it. Colour never stands alone: the two signs have characters of their own, and the newest figure
is printed beside them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output, wording
from penstock.cli.session import Session, connected

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from penstock.wire import FragmentationView, NodeView

Json = dict[str, Any]
CPU_STRANDS: Final = "░▒▓█"
ACCELERATORS_STRAND: Final = "-=%#"
EVEN: Final = "·"
UNKNOWN: Final = " "
NOTHING_BELOW: Final = 0.05
"""Less than this is not worth a mark."""
MOST_NODES: Final = 200
NAME_WIDTH: Final = 18
_BESIDE: Final = 30
"""Columns of the figures beside the map."""


@connected
def fragmentation_(
    session: Session,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=20_160, help="How far back to look.")
    ] = 60,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=5000, help="Most nodes, the worst first.")
    ] = 40,
) -> None:
    """Draw the fragmentation of the nodes over time: where CPU or accelerators strand."""
    from penstock.wire import Resolution

    now = time.time()
    nodes = list(session.brain.nodes())
    fine = Resolution.MINUTE if minutes <= 24 * 60 else Resolution.TEN_MINUTES
    history = list(session.brain.fragmentation(resolution=fine, start=now - minutes * 60))
    if not nodes and session.output is output.Format.TABLE:
        session.note("the scheduler has shown the Brain no nodes yet: `penstock doctor` looks why")
        return
    session.show(
        {
            "nodes": [node.model_dump(mode="json") for node in nodes],
            "history": [moment.model_dump(mode="json") for moment in history],
        },
        lambda: heatmap(nodes, history, now, minutes, session.console.width, limit),
    )


def mark(value: float | None) -> tuple[str, str]:
    """The character of a figure, and its colour."""
    if value is None:
        return UNKNOWN, ""
    if abs(value) < NOTHING_BELOW:
        return EVEN, "dim"
    shade = min(3, int(abs(value) * 4))
    return (CPU_STRANDS[shade], "blue") if value > 0 else (ACCELERATORS_STRAND[shade], "red")


def cells(
    name: str, history: list[FragmentationView], start: float, seconds: float, width: int
) -> list[float | None]:
    """A node's figures in `width` intervals: of each the one farthest from zero."""
    found: list[float | None] = [None] * width
    for moment in history:
        value = moment.nodes.get(name)
        place = int((moment.time - start) / seconds * width)
        if value is None or not 0 <= place < width:
            continue
        had = found[place]
        if had is None or abs(value) > abs(had):
            found[place] = value
    return found


def heatmap(
    nodes: list[NodeView],
    history: list[FragmentationView],
    now: float,
    minutes: int,
    columns: int,
    limit: int,
) -> RenderableType:
    """The map with its legend, as wide as the terminal."""
    from rich.console import Group
    from rich.text import Text

    worst = sorted(nodes, key=lambda node: (-abs(node.fragmentation), node.name))[:limit]
    name_width = min(NAME_WIDTH, max(len(node.name) for node in worst))
    width = max(10, min(minutes, columns - name_width - _BESIDE))
    start, seconds = now - minutes * 60, minutes * 60.0
    lines: list[Text] = [_header(name_width, width, minutes)]
    for node in sorted(worst, key=lambda each: each.name):
        line = Text(_short(node.name, name_width).ljust(name_width + 1), no_wrap=True)
        for value in cells(node.name, history, start, seconds, width):
            line.append(*mark(value))
        sign, colour = mark(node.fragmentation)
        line.append(f" {sign} ", colour).append(f"{node.fragmentation:+.2f}")
        line.append(f"{_free(node.free_milli_cpu, node.milli_cpu, 1000):>11}")
        line.append(f"{_free(node.free_accelerators, node.accelerators, 1):>9}")
        if node.cordoned:
            line.append(" cordoned")
        lines.append(line)
    if len(nodes) > len(worst):
        lines.append(Text(f"and {len(nodes) - len(worst)} nodes that are less so", style="dim"))
    return Group(*lines, _legend(history, nodes))


def _header(name_width: int, width: int, minutes: int) -> Text:
    from rich.text import Text

    ago = f"{wording.duration(minutes * 60)} ago"
    span = (ago + "now".rjust(width - len(ago))) if width >= len(ago) + 4 else "now".rjust(width)
    head = f"{'NODE'.ljust(name_width)} {span}     NOW{'CPU FREE':>11}{'GPU FREE':>9}"
    return Text(head, style="bold", no_wrap=True)


def _free(free: float, whole: float, unit: int) -> str:
    return f"{free / unit:g}/{whole / unit:g}" if whole else "-"


def _short(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def _legend(history: list[FragmentationView], nodes: list[NodeView]) -> Text:
    from rich.text import Text

    said = Text("\n")
    said.append(CPU_STRANDS, "blue").append(" CPU strands   ")
    said.append(ACCELERATORS_STRAND, "red").append(" accelerators strand   ")
    said.append(EVEN, "dim").append(" even   blank: not seen")
    if history:
        newest = history[-1]
        said.append(
            f"\nStranded in the whole cluster: {newest.stranded_gpus:g} accelerators, "
            f"{newest.stranded_cpu_cores:g} cores, of {len(nodes)} nodes."
        )
    return said
