"""The elastic variant of the images example: alone, and shared by two workers that change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.elastic.processes import running_job
from penstock.crds.elasticjob import ElasticJob

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "examples/images/train_elastic.py"
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}


@pytest.mark.slow
def test_it_trains_alone_and_sees_every_crop_once_per_epoch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, f"--data={tmp_path}", "--epochs=3", "--crops=32"],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("penstock-result ")]
    result = json.loads(line.partition(" ")[2])
    assert result["samples_seen"] == 3 * 320
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["accuracy"] > 0.2  # guessing gives 0.1


@pytest.mark.slow
def test_a_second_worker_joins_and_no_crop_is_lost_or_repeated(tmp_path: Path) -> None:
    command = (sys.executable, SCRIPT, f"--data={tmp_path / 'data'}", "--crops=16", "--epochs=20")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        job.start_worker(0, *command)
        job.wait_for_step(2)
        job.start_worker(1, *command)
        job.wait_for_world(2)
        assert set(job.exit_codes().values()) == {0}, job.logs()
        result = job.result()
        assert result["samples_seen"] == 20 * 160
        assert result["samples_lost"] == result["samples_repeated"] == 0


def test_its_job_is_valid_and_runs_the_script() -> None:
    document = yaml.safe_load((ROOT / "examples/images/job_elastic.yaml").read_text())
    job = ElasticJob.model_validate(document)
    [container] = job.spec.replica_specs.worker.template["spec"]["containers"]
    assert container["command"] == ["penstock", "run", "--", "python", SCRIPT]
