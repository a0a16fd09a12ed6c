"""Writes the dashboards into the chart: ``python -m penstock.scheduler.dashboards [--check]``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

from penstock.crds.generated import command
from penstock.scheduler.dashboards import DASHBOARDS, render

FOLDER: Final = Path("charts/penstock/dashboards")

if __name__ == "__main__":
    sys.exit(command({FOLDER / name: partial(render, name) for name in DASHBOARDS}))
