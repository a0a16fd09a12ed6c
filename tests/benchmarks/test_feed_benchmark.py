"""The benchmark that feeds a training program, cut short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.feed import compare, gpu_goals, sleep_goals
from benchmarks.feeding.charged_memory import charged_memory
from benchmarks.feeding.process_tree import ProcessTree

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_each_system_has_its_figures() -> None:
    options = ["--workers=1", "--pipelines=small", "--systems=torch,local", "--rounds=1"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.feed",
            "--json",
            "--seconds=0.2",
            "--settle-seconds=0.2",
            *options,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=55,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [row["system"] for row in found["rows"]] == ["torch", "local"]
    for row in found["rows"]:
        assert row["images_per_second"] > 0
        assert row["cpu_ms_per_image"] > 0
        assert row["tree_peak_mb"] > 50
        assert row["makers"] == 1
    assert found["rows"][0]["of_torch"] == 1
    assert found["goals"] == []


SHARES = """
import mmap, os
def said(stage):
    print(stage, flush=True)
    input()
said("began")
file = os.memfd_create("batch")
os.write(file, b"x" * (32 << 20))
said("written")
with mmap.mmap(file, 32 << 20) as mapped:
    said("mapped")
    assert mapped[:: mmap.PAGESIZE]
    said("touched")
"""


def test_shared_memory_is_counted_once_whoever_has_it() -> None:
    # In a process of its own: this one's memory grows and shrinks with other tests.
    command = [sys.executable, "-c", SHARES]
    found: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        tree = ProcessTree(process.pid, process.pid)
        for stage in ("began", "written", "mapped", "touched"):
            assert process.stdout.readline().strip() == stage
            found.append(tree._tree_bytes())
            process.stdin.write("\n")
            process.stdin.flush()
    before, *after = found
    assert [one - before for one in after] == [pytest.approx(32 << 20, rel=0.2)] * 3


def row(pipeline: str, workers: int, system: str, rate: float, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "workers": workers,
        "system": system,
        "images_per_second": rate,
        "batch_mb": 150.0,
        "gb_per_second": 1.0,
        "training_cores": 0.1,
        "peak_mb": 100,
        "tree_peak_mb": 200,
        "charged_mb": None,
        "pod_mb": 100,
        **more,
    }


def test_workers_that_wait_are_to_add_up() -> None:
    rows = [row("sleep", 1, "torch", 10.0), row("sleep", 12, "torch", 119.0)]
    rows += [row("sleep", 12, "local", 118.0), row("sleep", 12, "data", 100.0)]
    compare(rows)
    assert [goal.ok for goal in sleep_goals(rows)] == [True, True, False, True]
    assert sleep_goals([one for one in rows if one["workers"] == 1]) == []


def test_a_pod_is_to_need_no_more_memory() -> None:
    rows = [row("sleep", 1, "torch", 10.0), row("sleep", 12, "torch", 119.0, pod_mb=1000)]
    rows += [row("sleep", 12, "local", 118.0, pod_mb=1090)]
    rows += [row("sleep", 12, "data", 118.0, pod_mb=1110)]
    compare(rows)
    missed = [goal.name for goal in sleep_goals(rows) if not goal.ok]
    assert missed == ["sleep, 12 workers, data: pod's memory, of DataLoader's"]


def test_a_cgroup_is_charged_for_what_nobody_has_mapped() -> None:
    """Which is why resident sets are not what a pod is killed for."""
    with charged_memory() as memory:
        if memory.peak_bytes() is None:
            pytest.skip("this machine lets nobody make memory cgroups")
        program = "import os, sys; sys.stdin.read(1); os.write(3, b'x' * (64 << 20))"
        file = os.memfd_create("held")
        process = subprocess.Popen(
            [sys.executable, "-c", program.replace("3", str(file))],
            stdin=subprocess.PIPE,
            pass_fds=[file],
        )
        memory.take(process.pid)
        process.communicate(b"x", timeout=50)
        assert (memory.peak_bytes() or 0) >= 64 << 20
        os.close(file)


def test_what_a_gpu_is_to_reach() -> None:
    rows = [row("jpeg", 1, "torch", 100.0), row("jpeg", 8, "torch", 700.0)]
    rows += [row("jpeg", 1, "local", 101.0), row("jpeg", 8, "local", 710.0)]
    rows += [row("ready", 8, "torch", 1.0), row("ready", 8, "local", 1.0, batch_mb=308.0)]
    compare(rows)
    missed = [goal.name for goal in gpu_goals(rows, 600.0) if not goal.ok]
    assert missed == ["ready, local: GB/s"]
    missed = [goal.name for goal in gpu_goals(rows, 4000.0) if not goal.ok]
    assert missed == ["jpeg, local: of the least of GPU and workers", "ready, local: GB/s"]
