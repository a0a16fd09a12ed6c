"""The digits example runs by itself and learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.crds.elasticjob import ElasticJob

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}


@pytest.mark.slow
def test_it_trains_alone_and_sees_every_image_once_per_epoch() -> None:
    done = subprocess.run(
        [sys.executable, "examples/digits/train.py", "--epochs=6", "--width=32"],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("penstock-result ")]
    result = json.loads(line.partition(" ")[2])
    assert result["samples_seen"] == 6 * 1437
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["accuracy"] > 0.9


def test_its_job_is_valid_and_runs_the_script() -> None:
    document = yaml.safe_load((ROOT / "examples/digits/job.yaml").read_text())
    job = ElasticJob.model_validate(document)
    [container] = job.spec.replica_specs.worker.template["spec"]["containers"]
    script = next(part for part in container["command"] if part.endswith(".py"))
    assert (ROOT / script).is_file()
    assert container["command"][:3] == ["penstock", "run", "--"]
