"""`penstock run --apply`: what a profile says is done, looked after, and taken back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from penstock.data.applying import check, choose, verdict
from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.capacity import Placement, bounds
from penstock.throughput.limits.cut import cuts_of
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from penstock.trainer.commands import _choice
from tests.throughput.programs import a_profile

PROGRAM = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), index)

taken, begun = 0, time.perf_counter()
for batch in DataLoader(Slow(), batch_size=8):
    taken += int(batch.sum())
    if time.perf_counter() - begun > float(sys.argv[1]):
        break
print(json.dumps(taken))
"""
IN_LINE = a_profile(
    program="train.py",
    batch_size=8,
    stages=(StageCost("dataset", "opaque", 0.0001, 0.002, bytes_out=64),),
    step=Measured(0.0005, 0.0005, 0.0005, 30),
    rate=Measured(460.0, 450.0, 470.0, 30),
    stalled=0.97,
    resources=Resources(cores=2, workers=0),
)


def test_the_fewest_that_come_near_the_best_are_chosen() -> None:
    choice = choose(IN_LINE, 2)
    assert choice.data_workers == 2
    assert choice.promised.rate > 1.5 * choice.now
    assert "promise" in choice.text


def test_processes_that_train_together_share_the_data_workers() -> None:
    trains = replace(IN_LINE, step=Measured(0.01, 0.01, 0.01, 30), rate=Measured(298, 297, 299, 30))
    one, two = choose(trains, 2), choose(replace(trains, processes=2), 2)
    assert (one.data_workers, two.data_workers) == (2, 2)
    assert two.promised.rate < 0.7 * one.promised.rate
    assert "samples/s in each of 2 processes" in two.text


def test_a_profile_that_explains_nothing_starts_nothing() -> None:
    choice = choose(replace(IN_LINE, model_error=1.67), 2.0)
    assert choice.data_workers == 0
    assert "its costs explain 267% of the rate that it had" in choice.text
    assert "profile it again" in choice.text
    assert choose(IN_LINE, 2.0).data_workers > 0


def test_a_step_that_is_hardly_known_is_named_where_it_keeps_all_from_being_promised() -> None:
    hardly = Measured(0.018, -0.004, 0.04, 4)
    choice = choose(replace(IN_LINE, step=hardly, model_error=0.26), 2.0)
    assert choice.data_workers == 0
    assert "a step of its training takes is known to within 122% only" in choice.text
    assert "explain" not in choice.text


def test_none_is_started_where_they_would_not_help() -> None:
    bound = replace(IN_LINE, step=Measured(0.2, 0.2, 0.2, 30), rate=Measured(37, 36, 38, 30))
    choice = choose(bound, 2)
    assert choice.data_workers == 0
    assert "none is started" in choice.text


@pytest.mark.parametrize(("rate", "kept"), [(900.0, True), (700.0, True), (500.0, False)])
def test_a_promise_of_which_half_is_missing_is_taken_back(rate: float, *, kept: bool) -> None:
    choice = choose(IN_LINE, 2)
    found, said = verdict(replace(choice, now=460.0), rate * choice.promised.rate / 920.0)
    assert found is kept
    assert "promised" in said


def test_a_rate_that_the_profile_cannot_explain_is_said_to_be_none_of_its_promise() -> None:
    choice = choose(IN_LINE, 2)
    high = choice.promised.high
    assert verdict(choice, 0.99 * high)[1].endswith(": kept")
    kept, said = verdict(choice, 1.5 * high)
    assert kept
    assert f"{high:.4g} at most" in said
    assert "profile it again" in said


def test_the_profile_of_another_program_or_machine_is_named() -> None:
    with pytest.raises(ProfileError, match=r"profile of train\.py"):
        check(IN_LINE, ["python", "other.py"], "m")
    assert check(IN_LINE, ["python", "dir/train.py"], "m") == ""
    known = replace(IN_LINE, keys={"machine": "EPYC"})
    assert "another machine (EPYC)" in check(known, ["train.py"], "Xeon")


def test_a_training_without_local_workers_makes_all_or_nothing_itself() -> None:
    cut = cuts_of(IN_LINE.stages)[0]

    def least(data_workers: int, share: float) -> float:
        there = Resources(cores=2, workers=0, data_workers=data_workers)
        return min(bounds(IN_LINE, there, Placement(cut, share)).values())

    assert least(0, 1.0) < 1.1 * 460
    assert least(2, 0.0) < 1.1 * 460
    assert least(2, 0.01) == least(2, 1.0) > 2 * 460


@pytest.mark.slow
def test_a_program_runs_faster_as_promised_and_gets_the_same_batches(tmp_path: Path) -> None:
    program, profile = tmp_path / "train.py", tmp_path / "p.json"
    program.write_text(PROGRAM)
    profile.write_text(IN_LINE.dumps())
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--apply", str(profile), "--", sys.executable, str(program), "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == 8 * sum(range(4000))
    assert "2 data workers beside the program promise" in done.stderr
    assert "where samples draw random numbers, data workers have them draw others" in done.stderr


def test_a_file_that_is_no_profile_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--apply", str(tmp_path / "p.json"), "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "version" in re.sub(r"\s+", " ", done.stderr)


def test_a_profile_of_more_workers_than_are_simulated_is_named(tmp_path: Path) -> None:
    many = replace(a_profile(), resources=Resources(cores=4, workers=4096))
    (tmp_path / "p.json").write_text(many.dumps())
    with pytest.raises(typer.BadParameter, match="--apply: workers: 4097 must be at most 4096"):
        _choice(tmp_path / "p.json", ["python", "train.py"])
