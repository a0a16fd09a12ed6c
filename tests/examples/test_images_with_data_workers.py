"""``examples/images/train.py``, unmodified, learns the same with data workers as without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.crds.elasticjob import ElasticJob

ROOT = Path(__file__).parents[2]


def learned(folder: Path, workers: int) -> list[tuple[str, ...]]:
    """Loss and accuracy of each epoch, as printed."""
    penstock = str(Path(sys.executable).with_name("penstock"))
    script = str(ROOT / "examples/images/train.py")
    command = [penstock, "run", "--data-workers", str(workers), "--", sys.executable, script]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [*command, "--data=crops", "--epochs=2", "--crops=8"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert "stays in this process" not in done.stderr
    return re.findall(r"loss ([\d.]+), accuracy ([\d.]+)", done.stdout)


@pytest.mark.slow
def test_two_data_workers_change_nothing_that_is_learned(tmp_path: Path) -> None:
    wanted = learned(tmp_path, 0)
    assert len(wanted) == 2
    assert learned(tmp_path, 2) == wanted


def test_the_job_with_data_workers_is_valid_and_runs_the_script() -> None:
    document = yaml.safe_load((ROOT / "examples/images/job_data_workers.yaml").read_text())
    roles = ElasticJob.model_validate(document).spec.replica_specs
    [container] = roles.worker.template["spec"]["containers"]
    assert container["command"] == ["penstock", "run", "--", "python", "examples/images/train.py"]
    assert roles.data_worker is not None
    assert roles.data_worker.replicas == 0, "a Scale says how many"
