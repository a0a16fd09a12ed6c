"""examples/islands: two processes hold one sharded model, and train it together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", *arguments],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_processes_of_a_replica_group_train_each_sample_once() -> None:
    words = ("--replica-group", "--", "examples/islands/train.py", "--epochs=3")
    done = run("--nproc-per-node=2", *words)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"penstock-result (.*)", done.stdout)
    assert len(found) == 1, "one process speaks for all"
    result = json.loads(found[0])
    assert result["samples_seen"] == 3 * 2048
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["accuracy"] > 0.8


def test_how_many_processes_a_replica_group_has_is_asked_for() -> None:
    done = run("--replica-group", "--", "examples/islands/train.py")
    assert done.returncode == 2
    assert "--nproc-per-node" in done.stderr
