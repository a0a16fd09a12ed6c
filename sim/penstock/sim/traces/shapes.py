"""What every trace is read into: nodes and jobs, whatever the file called them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node of a trace: its name, its totals, and the model of its accelerators."""

    name: str
    milli_cpu: int
    memory_bytes: int
    accelerators: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job of a trace: when it was submitted, how many accelerators it held, and for how long.

    Times are seconds since the start of the trace.
    """

    submitted_seconds: float
    duration_seconds: float
    accelerators: int
