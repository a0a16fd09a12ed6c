"""A drawing of imports: ``python -m tests.house.drawing PACKAGE... --out FILE``.

One node for each module, one box for each folder, one line for each import. Folders stand above
those that they import, so that a line that goes up closes a circle; such lines are red. Imports
within a folder are orange.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Final

from tests.house.structure import ROOT, Structure

COLUMN: Final = 172
ROW: Final = 17
HEAD: Final = 24
GAP: Final = 34
PER_COLUMN: Final = 12


def floors(graph: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """How many folders lie below each; those of a circle lie as high as they are met first."""
    height: dict[str, int] = {}

    def visit(folder: str, above: frozenset[str]) -> int:
        if folder not in height:
            below = [visit(one, above | {folder}) for one in graph[folder] if one not in above]
            height[folder] = 1 + max(below, default=-1)
        return height[folder]

    for folder in sorted(graph):
        visit(folder, frozenset())
    return height


def draw(structure: Structure, packages: Iterable[str]) -> str:
    """The drawing as SVG."""
    chosen = tuple(packages)
    names = [
        name
        for name in structure.imports
        if any(name == one or name.startswith(f"{one}.") for one in chosen)
    ]
    members: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        members[structure.folder(name)].append(name)
    graph = {
        folder: {one for one in targets if one in members}
        for folder, targets in structure.folders().items()
        if folder in members
    }
    height = floors(graph)
    place: dict[str, tuple[float, float]] = {}
    boxes: list[str] = []
    y, width = 10.0, 0.0
    for floor in sorted(set(height.values()), reverse=True):
        x, tallest = 10.0, 0.0
        for folder in sorted(one for one in members if height[one] == floor):
            columns = -(-len(members[folder]) // PER_COLUMN)
            rows = -(-len(members[folder]) // columns)
            wide, tall = columns * COLUMN, HEAD + rows * ROW + 6
            boxes.append(
                f'<rect x="{x}" y="{y}" width="{wide}" height="{tall}" rx="6" fill="#f4f6f8" '
                f'stroke="#9aa5b1"/><text x="{x + 8}" y="{y + 16}" font-weight="bold">'
                f"{escape(folder.removeprefix('penstock.'))}</text>"
            )
            for index, name in enumerate(members[folder]):
                place[name] = (
                    x + 12 + (index // rows) * COLUMN,
                    y + HEAD + (index % rows) * ROW + 8,
                )
            x += wide + GAP
            tallest = max(tallest, tall)
        y, width = y + tallest + GAP, max(width, x)
    lines: list[str] = []
    nodes: list[str] = []
    inside = 0
    for name, (x, top) in place.items():
        for target in structure.imports[name] & place.keys():
            to_x, to_y = place[target]
            within = structure.folder(target) == structure.folder(name)
            colour = "#d98e32" if within else "#c0392b" if to_y <= top else "#5d7fa3"
            inside += within
            lines.append(
                f'<line x1="{x}" y1="{top}" x2="{to_x}" y2="{to_y}" stroke="{colour}" '
                'stroke-opacity="0.4"/>'
            )
        nodes.append(
            f'<circle cx="{x}" cy="{top}" r="3.5" fill="#2c3e50"/>'
            f'<text x="{x + 8}" y="{top + 4}">{escape(name.rpartition(".")[2])}</text>'
        )
    caption = (
        f"{len(place)} modules, {len(lines) - inside} imports between folders, {inside} within "
        f"them (orange; {inside / max(len(place), 1):.1f} a module)"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y + 14:.0f}" '
        f'font-family="sans-serif" font-size="11">{"".join(boxes)}{"".join(lines)}'
        f'{"".join(nodes)}<text x="10" y="{y:.0f}">{caption}</text></svg>\n'
    )


def main() -> None:
    """Write a drawing."""
    parser = argparse.ArgumentParser(description="Draw the imports below some packages.")
    parser.add_argument("packages", nargs="+", help="such as penstock.trainer")
    parser.add_argument("--root", type=Path, default=ROOT, help="the source to read")
    parser.add_argument("--out", type=Path, required=True, help="the SVG file to write")
    options = parser.parse_args()
    options.out.write_text(draw(Structure(options.root), options.packages))


if __name__ == "__main__":
    main()
