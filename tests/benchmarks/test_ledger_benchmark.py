"""The ledger's benchmark runs, and its memory does not grow with the number of samples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def figures(samples: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger", "--json", f"--samples={samples}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=55,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_memory_stays_where_it_is_for_a_hundred_times_the_samples() -> None:
    small, large = figures(1_000_000), figures(100_000_000)
    assert large["samples_done"] == 100_000_000
    assert large["rss_mb"] < 50
    assert large["rss_mb"] - small["rss_mb"] < 5
    assert large["leases_per_cpu_second"] > 20_000
