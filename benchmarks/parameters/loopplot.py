"""The picture of a job whose plans changed it: its speed over time, and why each plan was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPEED, PLAN, FAULT = "#1f6f8b", "#8a5a00", "#a02020"


def plot(figures: dict[str, Any], path: Path) -> None:
    """Draw a round of `benchmarks.ps_loop`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    times, speeds = zip(*figures["speed_over_time"], strict=True)
    axes.step(times, speeds, where="post", color=SPEED)
    top = max(speeds) * 2.2
    rank, at = figures["server"]["rank"], figures["slowed_at_seconds"]
    marks = [(at, f"server {rank} is slowed to 25 %", FAULT)]
    marks += [
        (plan["at_seconds"], f"{plan['stage']}: {plan['reason']}", PLAN)
        for plan in figures["plans"]
    ]
    for when, text, colour in marks:
        axes.axvline(when, color=colour, linewidth=1, linestyle=":")
        axes.text(when + 0.5, top * 0.98, text, rotation=90, va="top", fontsize=8, color=colour)
    axes.set(xlabel="seconds since the job was applied", ylabel="batches per second", ylim=(0, top))
    axes.set_xlim(0, times[-1] + times[1] - times[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
