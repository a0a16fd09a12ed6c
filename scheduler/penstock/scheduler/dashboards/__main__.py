"""Writes all dashboards into a folder."""

import sys
from pathlib import Path

from penstock.scheduler.dashboards import DASHBOARDS, render


def main(arguments: list[str]) -> int:
    """The exit code."""
    if len(arguments) != 1:
        print("usage: python -m penstock.scheduler.dashboards FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    for name in DASHBOARDS:
        (Path(arguments[0]) / name).write_text(render(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
