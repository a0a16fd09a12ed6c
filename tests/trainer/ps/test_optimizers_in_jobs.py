"""Real processes: state of the optimizer, rates and ids live as long as the parameters do.

With one worker the batches come in one order, so whatever happens to the servers meanwhile, the
model is that of one process without any: in every bit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import run_alone, running_job
from penstock.crds import environment as names
from tests.trainer.programs.clicks_by_id import EPOCHS, SAMPLES, SLOTS

PROGRAM = (sys.executable, "-m", "tests.trainer.programs.clicks_by_id")


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["adamw", "sgd"])
def test_moves_and_a_killed_server_leave_what_one_process_trains(rule: str, tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        hurry = tmp_path / "hurry"
        environ = {names.CHECKPOINT_DIR: str(tmp_path / "model")}
        job.start_trainer("--lease-seconds=8")
        for rank in range(2):
            job.start_server(rank)
        job.start_worker(0, *PROGRAM, f"--rule={rule}", f"--hurry={hurry}", environ=environ)
        job.wait_for_step(30)
        job.start_server(2)
        job.wait_for_summary(lambda summary: len(summary["servers"]["owners"]) == 3, 40)
        job.wait_for_step(60)
        job.kill_server(0)
        job.start_server(0)
        job.wait_for_summary(lambda summary: summary["servers"]["restores"] == 1, 40)
        job.wait_for_step(90)
        leaving = job.drain_server(1)
        assert leaving.wait(30) == 0, job.logs()
        hurry.touch()
        assert job.exit_codes(50) == {0: 0}, job.logs()
        result = job.result()
    assert result["samples_seen"] == SAMPLES * EPOCHS
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["batches"] == SLOTS
    alone = json.loads(run_alone(*PROGRAM, f"--rule={rule}").partition("penstock-result ")[2])
    assert 0 < result["users"] == alone["users"]
    assert result["checksum"] == alone["checksum"], "another model than one process trains"
