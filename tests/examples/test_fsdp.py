"""examples/fsdp: an unmodified FSDP2 program over two pods, then one, then two processes of one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import ROOT, Job, running_job
from tests.patience import patient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

FSDP = "examples/fsdp/train.py"
SAVES = re.compile(r"saves step (\d+) with (\d+) processes: (\S+),")
BEGUN = re.compile(r"begins at step (\d+) with (\d+) processes: (\S+)")


def run_as_two(*words: str) -> str:
    """Train on as two processes of this machine; what they print."""
    command = [sys.executable, "-m", "penstock.cli", "run", "--nproc-per-node=2", "--", FSDP]
    done = subprocess.run(
        [*command, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(job: Job, rank: int, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """What the newest life of a worker has said of its checkpoints."""
    return pattern.findall(job.log_path(rank).read_text())


def test_fsdp_goes_on_from_its_shards_when_a_pod_is_killed_and_in_other_numbers(
    tmp_path: Path,
) -> None:
    """The same parameters, bit by bit, whatever the number of those that wrote and read them."""
    folder = f"--checkpoints={tmp_path / 'checkpoints'}"
    with running_job(tmp_path) as job:
        job.start_trainer()
        for rank in range(2):
            job.start_worker(rank, FSDP, "--steps=1000000", folder, options=("--nproc-per-node=1",))
        saved = tmp_path / "checkpoints"
        job.wait_for(lambda: [*saved.glob("*/.metadata")], patient(40), "a checkpoint of two")
        job.kill(1)
        job.wait_for(lambda: len(said(job, 0, BEGUN)) > 1, patient(40), "a world of one")
        step, processes, read = said(job, 0, BEGUN)[-1]
        assert processes == "1"
        assert (step, "2", read) in said(job, 0, SAVES)
        job.wait_for(lambda: said(job, 0, SAVES)[-1][1] == "1", patient(40), "one of its own")
    newest = max(int(path.parent.name[5:]) for path in saved.glob("*/.metadata"))
    output = run_as_two(f"--steps={newest + 2}", "--save-every=2", folder)
    [(step, processes, read)] = BEGUN.findall(output)
    assert (int(step), processes) == (newest, "2")
    assert read in {value for _, _, value in said(job, 0, SAVES)}
    last = SAVES.findall(output)[-1]
    assert int(last[0]) == newest + 2
    again = run_as_two(f"--steps={newest + 3}", folder)
    assert BEGUN.findall(again) == [(last[0], "2", last[2])], "its own shards, of two processes"
