"""The click-log example: its generator, its models alone, and what moving to servers changes."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from penstock.crds.elasticjob import ElasticJob

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/criteo"
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
SHORT = ("--samples=6000", "--test-samples=4000", "--batch-size=100", "--cap=100")


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    import data

    yield data
    del sys.modules["data"]


def run(script: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/criteo/{script}", *SHORT, *options],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sample_is_the_same_whoever_makes_it_and_in_whatever_batch(data: ModuleType) -> None:
    clicks = data.Clicks(seed=3)
    together = clicks.make(torch.tensor([5, 900, 12]))
    for place, sample in enumerate((5, 900, 12)):
        apart = data.Clicks(seed=3).make(torch.tensor([sample]))
        assert all(torch.equal(a[place], b[0]) for a, b in zip(together, apart, strict=True))
    other = data.Clicks(seed=4).make(torch.tensor([5, 900, 12]))
    assert not torch.equal(together[1], other[1])


def test_columns_are_as_they_are_documented(data: ModuleType) -> None:
    clicks = data.Clicks(cap=1000)
    numbers, ids, labels = clicks.make(torch.arange(20_000))
    assert numbers.shape == (20_000, 13)
    assert (numbers.dtype, ids.dtype, labels.dtype) == (torch.float32, torch.int64, torch.float32)
    assert ids.shape == (20_000, 26)
    assert float(numbers.min()) == 0
    sizes = torch.tensor(clicks.sizes)
    assert bool(((ids >= 0) & (ids < sizes)).all())
    counts = torch.bincount(ids[:, 2], minlength=1000).sort(descending=True).values
    assert 4 < counts[0] / counts[9] < 25, "the frequency falls as a power of the rank"
    assert int((counts == 0).sum()) > 0, "many values are rare"
    assert 0.2 < float(labels.mean()) < 0.5
    assert data.auc(clicks.logits(torch.arange(20_000)), labels) > 0.8


def test_auc_counts_ties_half(data: ModuleType) -> None:
    labels = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert data.auc(torch.tensor([1.0, 2.0, 3.0, 4.0]), labels) == 0.75
    assert data.auc(torch.tensor([1.0, 1.0, 1.0, 1.0]), labels) == 0.5
    assert data.auc(torch.tensor([1.0, 2.0, 2.0, 2.0]), labels) == 0.75


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("wide_deep.py", ()),
        ("xdeepfm.py", ("--optimizer=Adam", "--learning-rate=0.005", "--warmup=5")),
    ],
)
def test_it_learns_alone_and_sees_every_sample_once(script: str, options: tuple[str, ...]) -> None:
    out = run(script, *options)
    [line] = [line for line in out.splitlines() if line.startswith("penstock-result ")]
    result: dict[str, Any] = json.loads(line.partition(" ")[2])
    assert result["samples_seen"] == 6000
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["auc"] > 0.65


@pytest.mark.slow
def test_the_plain_program_learns_as_much() -> None:
    assert float(run("wide_deep_plain.py").split()[1]) > 0.65


def test_moving_to_servers_changes_fewer_than_ten_lines_and_the_page_shows_them() -> None:
    plain = (FOLDER / "wide_deep_plain.py").read_text().partition("from __future__")[2]
    moved = (FOLDER / "wide_deep.py").read_text().partition("from __future__")[2]
    lines = list(difflib.unified_diff(plain.splitlines(), moved.splitlines(), n=0, lineterm=""))
    changed = [line for line in lines[2:] if line[0] in "+-" and line[1:].strip()]
    added = [line for line in changed if line[0] == "+"]
    removed = [line for line in changed if line[0] == "-"]
    assert max(len(added), len(removed)) < 10
    page = (ROOT / "docs/parameter-servers.md").read_text()
    [shown] = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    shown_changes = [line for line in shown.splitlines() if line[:1] in ("+", "-")]
    assert [line for line in shown_changes if line[1:].strip()] == changed


def test_its_job_is_valid_and_runs_the_script() -> None:
    job = ElasticJob.model_validate(yaml.safe_load((FOLDER / "job.yaml").read_text()))
    assert job.spec.strategy == "ParameterServer"
    [container] = job.spec.replica_specs.worker.template["spec"]["containers"]
    assert container["command"][:3] == ["penstock", "run", "--"]
    [script] = [part for part in container["command"] if part.endswith(".py")]
    assert (ROOT / script).is_file()
    assert job.spec.replica_specs.ps is not None
    [server] = job.spec.replica_specs.ps.template["spec"]["containers"]
    assert server["command"] == ["penstock", "ps"]
