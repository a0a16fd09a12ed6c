"""What ``penstock sim ps`` prints has the documented shape, and bad options are named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from penstock.sim.ps.experiments import random_summary

PENSTOCK = Path(sys.executable).with_name("penstock")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PENSTOCK), "sim", *arguments], capture_output=True, text=True, timeout=55, check=False
    )


def test_a_paper_model_as_json() -> None:
    done = run("ps", "--model", "xdeepfm", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert set(shown["runs"]) == {"static", "optimus", "heuristic", "optimize_ps", "fitted_ps"}
    for row in shown["runs"].values():
        wanted = {"final_steps_per_second", "linear_steps_per_second", "adjustment_seconds"}
        assert wanted | {"jct_seconds", "plans", "throughput"} <= set(row)
        for plan in row["plans"]:
            assert {"time_seconds", "stage", "reason", "worker", "ps"} <= set(plan)
            assert plan["worker"]["replicas"] >= 1
            assert plan["ps"]["cpu"] > 0


def test_random_jobs_as_json_do_not_depend_on_processes() -> None:
    together = run("ps", "--random", "2", "--seed", "9", "--json", "--processes", "2")
    assert together.returncode == 0, together.stderr
    rows = json.loads(together.stdout)["algorithms"]
    alone = random_summary(2, seed=9, processes=1)
    assert rows == {name: asdict(row) for name, row in alone.items()}
    for row in rows.values():
        wanted = {"median_ratio", "worst_ratio", "max_ps_changes", "median_adjustment_seconds"}
        assert wanted <= set(row)


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra `sim`")
    picture = tmp_path / "speed.png"
    done = run("ps", "--model", "xdeepfm", "--straggler", "ps", "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_create_stage_as_json() -> None:
    done = run("create", "--past", "200", "--new", "20", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["sizes"]) == {"user", "history_create"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("ps",), "either --model or --random"),
        (("ps", "--model", "wide-deep", "--random", "3"), "either --model or --random"),
        (("ps", "--random", "3", "--straggler", "ps"), "go with --model"),
        (("ps", "--random", "0"), "greater than or equal to 1"),
        (("ps", "--model", "resnet"), "resnet"),
    ],
)
def test_bad_options_are_named(arguments: tuple[str, ...], problem: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert problem in done.stderr
