"""A dry run: what would move, and why the rest stays, written down for ``penstock partition``.

A loader's steps are recorded as always; nothing is sent, and the program runs on as written. One
file of JSON for each loader, complete when it has its name.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.data.torchpartition.plan import Plan

FOLDER: Final = "PENSTOCK_PARTITION_FOLDER"
"""Where the files are written; set by ``penstock partition`` alone."""
SUFFIX: Final = ".partition.json"


def looking(name: str, environ: Mapping[str, str]) -> Callable[[Plan | None, str], None] | None:
    """Writes what was found of a loader's steps, in a program that is only looked at."""
    folder = environ.get(FOLDER)
    if not folder:
        return None
    return lambda planned, why: write(folder, described(name, planned, why))


def described(name: str, planned: Plan | None, why: str) -> dict[str, Any]:
    """What was found, as JSON has it; ``why``: it ended without a plan."""
    if planned is None:
        return {"loader": name, "moves": False, "why": why, "calls": []}
    recording = planned.recording
    return {
        "loader": name,
        "moves": bool(planned.moved),
        "why": planned.why,
        "step_seconds": round(planned.step_seconds, 6),
        "moved_seconds": round(planned.moved_seconds, 6),
        "bytes": {"batch": planned.batch_bytes, "crossing": planned.crossing_bytes},
        "cut": [
            {"shape": recording.metas[key].shape, "dtype": recording.metas[key].dtype}
            for key in planned.crossing
        ],
        "calls": [asdict(item) for item in planned.items],
    }


def write(folder: str, found: dict[str, Any]) -> None:
    """Write one loader's file."""
    with tempfile.NamedTemporaryFile(
        "w", dir=folder, prefix=f"{os.getpid()}-", suffix=".part", delete=False
    ) as file:
        json.dump(found, file)
    Path(file.name).rename(f"{file.name}{SUFFIX}")


def read(folder: Path) -> list[dict[str, Any]]:
    """What all loaders have written so far, in the order of time."""
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda one: one.stat().st_mtime_ns)
    return [json.loads(one.read_text(encoding="utf-8")) for one in files]


def text(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{found['loader']}: {'' if found['moves'] else 'nothing moves: '}{found['why']}"]
    if "bytes" in found:
        crossing = ", ".join(f"{one['dtype']}{list(one['shape'])}" for one in found["cut"])
        lines.append(
            f"  of a step of {found['step_seconds'] * 1e3:.2f} ms, "
            f"{found['moved_seconds'] * 1e3:.2f} ms move to data workers; the batch has "
            f"{found['bytes']['batch']} bytes, and {found['bytes']['crossing']} cross beside it"
            + (f": {crossing}" if crossing else "")
        )
    for item in found["calls"]:
        stage = "data workers" if item["moves"] else "training"
        why = f"  {item['why']}" if item["why"] else ""
        lines.append(
            f"  {stage:12}  {item['name']:32}  {item['seconds'] * 1e3:9.3f} ms  "
            f"{item['size_bytes']:>10} B{why}"
        )
    return "\n".join(lines)
