"""What ``penstock capacity`` asks and prints, and refuses before it asks anybody."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.capacity import headline, parse_shape, question, shown
from penstock.cli.exits import UsageError
from penstock.wire import ClusterWhatIf, Resources

SIDE = {
    "nodes": 3,
    "cpu_cores": 24,
    "free_cpu_cores": 4.5,
    "accelerators": 6,
    "free_accelerators": 2,
    "stranded_accelerators": 1.5,
    "stranded_cpu_cores": 0,
    "waiting_pods": 2,
}


def between(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def answer(**changes: Any) -> ClusterWhatIf:
    job = {
        "uid": "u",
        "namespace": "team",
        "name": "resnet",
        "effect": "Shrinks",
        "lost": {"worker": 2},
        "before": {
            "pods": {"worker": 4},
            "steps_per_second": between(2, 2, 2),
            "remaining_seconds": between(500, 500, 500),
            "cost_per_hour": 12,
        },
        "after": {
            "pods": {"worker": 2},
            "steps_per_second": between(1, 0.9, 2),
            "remaining_seconds": between(1000, 500, 1200),
            "cost_per_hour": 6,
        },
    }
    about = {
        "time": 1.0,
        "added": [],
        "removed": ["node-7"],
        "before": SIDE,
        "after": SIDE | {"nodes": 2, "waiting_pods": 4},
        "jobs": [job],
        "unchanged_jobs": 8,
        "currency": "EUR",
        "nodes_per_hour": -3.5,
        "notes": [],
    }
    return ClusterWhatIf.model_validate(about | changes)


def printed(found: ClusterWhatIf) -> str:
    stream = io.StringIO()
    Console(file=stream, width=160, no_color=True).print(shown(found))
    return stream.getvalue()


def test_the_cluster_and_the_jobs_are_shown_before_and_after() -> None:
    text = printed(answer())
    assert "Without node-7; they save 3.50 EUR an hour." in text
    assert [line.split() for line in text.splitlines() if "that wait" in line] == [
        ["pods", "that", "wait", "2", "4"]
    ]
    [job] = [line for line in text.splitlines() if "resnet" in line]
    assert "Shrinks" in job
    assert "4 > 2" in job
    assert "2 worker" in job
    assert "2.00 > 1.00 (0.90..2.00)" in job
    assert "8m20s > 16m (8m20s..20m)" in job
    assert "12.00 > 6.00" in job
    assert "8 jobs go on or wait as before" in text


def test_a_job_that_moves_fits_on_a_line_and_has_one_figure_for_what_stays() -> None:
    side = {
        "pods": {"worker": 16},
        "steps_per_second": between(3.46, 3.09, 3.82),
        "remaining_seconds": between(11_520, 10_380, 12_840),
        "cost_per_hour": 42.0,
        "remaining_cost": between(134.54, 121.66, 150.48),
    }
    moves = {
        "uid": "u",
        "namespace": "research",
        "name": "a-job-with-a-long-name",
        "effect": "Moves",
        "lost": {"worker": 2},
        "before": side,
        "after": side,
    }
    lines = printed(answer(jobs=[moves])).splitlines()
    [job] = [line for line in lines if "a-job-with-a-long-name" in line]
    words = "research  a-job-with-a-long-name  Moves  16 > 16  2 worker"
    assert job.split()[:8] == words.split()
    assert "3.46 (3.09..3.82)" in job
    assert "3h12m (2h53m..3h34m)" in job
    assert "42.00" in job
    assert "135 (122..150)" in job


def test_where_nothing_changes_this_is_said_and_without_prices_no_money() -> None:
    text = printed(answer(jobs=[], currency=None, nodes_per_hour=None, unchanged_jobs=1))
    assert "1 job goes on or waits as before" in text
    assert "EUR" not in text


def test_nodes_that_come_are_told_with_their_shape() -> None:
    shape = Resources(milli_cpu=96_000, memory_bytes=768 * 2**30, accelerators={"amd.com/gpu": 8})
    found = answer(added=["new-1", "new-2"], removed=[], shape=shape, nodes_per_hour=40)
    assert headline(found) == (
        "2 nodes more, each with 96 cores, 768 GiB, 8 amd.com/gpu; they cost 40.00 EUR an hour."
    )


def test_what_is_asked() -> None:
    asked = question("+4", "cpu=96,memory=768Gi,gpu=8", None)
    assert asked.nodes == 4
    assert asked.shape is not None
    assert asked.shape.accelerators == {"gpu": 8}
    assert question("-2", None, None).nodes == -2
    assert question(None, None, "node-7").fail_node == "node-7"
    assert parse_shape("cpu=500m, memory=1Gi") == (500, 2**30, {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((None, None, None), "either --nodes"),
        (("+1", None, "a"), "either --nodes"),
        ((None, "cpu=1,memory=1Gi", "a"), "--node-shape"),
        (("many", None, None), "--nodes many: say a whole number"),
        (("0", None, None), "--nodes 0: say 1 to 1000"),
        (("+9999", None, None), "--nodes"),
        (("1", "cpu=96", None), "memory: is missing"),
        (("1", "cpu=0,memory=1Gi", None), "cpu: is missing or 0"),
        (("1", "cpu=x,memory=1Gi", None), "--node-shape cpu=x"),
        (("1", "cpu=1,memory=1Gi,gpus=8", None), "gpus: no such resource"),
        (("1", "cpu=1,cpu=2,memory=1Gi", None), "once each"),
        (("1", "cpu=-1,memory=1Gi", None), "cpu"),
        (("1", "96", None), "as cpu=96"),
        (("1", "cpu=1,memory=1Gi,gpu=500", None), "at most 128"),
        (("1", "cpu=1,memory=1Gi,gpu=5000", None), "less than or equal to 1024"),
        ((None, None, "n" * 300), "fail_node: .* at most 253"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: tuple[str | None, str | None, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said.replace("+", r"\+")):
        question(*options)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "-0"], "--nodes -0: say 1 to 1000"),
        (["--nodes", "-2", "--fail-node", "a"], "either --nodes"),
        (["profile.json", "--nodes", "+1"], "ask of one thing"),
        ([], "--fail-node"),
    ],
)
def test_penstock_whatif_is_the_same_question(words: list[str], said: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "whatif", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2
    assert said in found.stderr
