"""A job whose pods have IPv6 addresses alone: trainer, agents, group, store and sums."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import running_job

SAMPLES = 1437


@pytest.mark.slow
def test_a_job_trains_over_ipv6(tmp_path: Path) -> None:
    command = (sys.executable, "examples/digits/train.py", "--width=32", "--epochs=4")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2", "--host=::1")
        assert job.address.startswith("[::1]:")
        for rank in range(2):
            job.start_worker(rank, *command, environ={"PENSTOCK_POD_IP": "::1"})
        assert set(job.exit_codes().values()) == {0}, job.logs()
        assert job.result()["samples_seen"] == 4 * SAMPLES
