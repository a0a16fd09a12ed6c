"""The Philly trace: jobs of a shared GPU cluster of Microsoft, as flattened for Pollux and Sia.

Jeon et al., USENIX ATC 2019 (CC-BY-4.0). It says when a job came, how many GPUs it held and for how
long; it says nothing about CPU.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from penstock.sim.traces.shapes import JobShape
from penstock.sim.traces.table import TraceRow, read_rows

SOURCE: Final = (
    "the Philly trace (github.com/msr-fiddle/philly-traces) as the CSV of the Sia artifact "
    "(github.com/siasosp23/artifacts)"
)
JOBS: Final = "philly_sia_pollux.csv"


def read_jobs(path: Path) -> list[JobShape]:
    """Every job, in order of submission; times count from the first one."""
    rows = [
        (_seconds(row), row.number("duration"), row.integer("num_gpus", at_least=1))
        for row in read_rows(path, ("timestamp", "duration", "num_gpus"), SOURCE)
    ]
    rows.sort()
    first = rows[0][0] if rows else 0.0
    return [JobShape(when - first, duration, gpus) for when, duration, gpus in rows]


def _seconds(row: TraceRow) -> float:
    try:
        return datetime.fromisoformat(row.text("timestamp")).timestamp()
    except ValueError:
        raise row.error(
            "timestamp", "must be a date and time such as 2017-10-09 07:01:55"
        ) from None
