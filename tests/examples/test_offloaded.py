"""Two examples with stateless work in their steps lose it, and no loss differs by a bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.base.enums import Partition
from penstock.crds.elasticjob import ElasticJob

ROOT = Path(__file__).parents[2]
UNDER = [str(Path(sys.executable).with_name("penstock")), "run", "--data-workers", "1"]


def losses(command: list[str]) -> tuple[list[str], str]:
    """Of each epoch as they were printed, and what was said beside."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return re.findall(r"loss ([\d.]+)", done.stdout), done.stderr


@pytest.mark.slow
def test_the_encoders_of_an_unmodified_diffusion_script_move() -> None:
    script = ["examples/diffusion/train.py", "--epochs=3", "--pictures=480", "--batch=16"]
    program = [sys.executable, *script, "--no-augment"]
    alone, _ = losses(program)
    assert len(alone) == 3
    found, said = losses([*UNDER, "--partition", "auto", "--", *program])
    assert found == alone
    assert "On: 2 calls move (Sequential, TextEncoder)" in said


def test_the_diffusion_job_is_valid_and_runs_the_script() -> None:
    text = (ROOT / "examples/diffusion/job.yaml").read_text()
    job = ElasticJob.model_validate(yaml.safe_load(text))
    assert job.spec.input.partition is Partition.AUTO
    [container] = job.spec.replica_specs.worker.template["spec"]["containers"]
    script = "examples/diffusion/train.py"
    assert container["command"] == ["penstock", "run", "--", "python", script]


def test_the_diffusion_script_knows_nothing_of_penstock() -> None:
    assert "import penstock" not in (ROOT / "examples/diffusion/train.py").read_text()


@pytest.mark.slow
def test_the_hashing_of_words_moves() -> None:
    program = [sys.executable, "examples/criteo/wide_deep_words.py", "--epochs=2"]
    program += ["--samples=2560", "--batch-size=64"]
    alone, _ = losses(program)
    found, said = losses([*UNDER, "--", *program])
    assert found == alone
    assert len(found) == 2
    assert "runs in the program" not in said
