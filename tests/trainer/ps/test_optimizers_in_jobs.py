"""Real processes: state of the optimizer, rates and ids live as long as the parameters do.

Whatever happens to the servers, the model is that of one process which trains the surviving
batches in the sequence in which they were applied: in every bit. What was computed with parameters
that a loss took is not applied to what remains; its batch is done again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, run_alone, running_job
from penstock.crds import environment as names
from tests.trainer.programs.clicks_by_id import EPOCHS, SAMPLES, SAVE_EVERY, SLOTS

PROGRAM = (sys.executable, "-m", "tests.trainer.programs.clicks_by_id")


def surviving(log: Path) -> list[int]:
    """The slots in the sequence in which they were applied, the lost ones where they were anew."""
    applied = [int(line) for line in log.read_text().splitlines()]
    last = {slot: place for place, slot in enumerate(applied)}
    assert len(last) == SLOTS < len(applied), "the killed server lost nothing"
    return sorted(last, key=lambda slot: last[slot])


def kill_between_saves(job: Job, applied: Path, model: Path) -> None:
    """Kill a server where no save is due and some batches are in none: with them its parameters."""
    program = job.training_process(0)

    def killed() -> bool:
        program.suspend()
        try:
            newest = max(int(file.stem.partition("-")[2]) for file in model.glob("*.penstock"))
            if not 3 <= len(applied.read_text().splitlines()) - newest < SAVE_EVERY:
                return False
            job.kill_server(0)
            return True
        finally:
            program.resume()

    job.wait_for(killed, 40, "a moment between two saves")


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["adamw", "sgd"])
def test_moves_and_a_killed_server_leave_what_one_process_trains(rule: str, tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        hurry, applied = tmp_path / "hurry", tmp_path / "applied"
        environ = {names.CHECKPOINT_DIR: str(tmp_path / "model")}
        job.start_trainer("--lease-seconds=20")
        for rank in range(2):
            job.start_server(rank)
        job.start_worker(
            0,
            *PROGRAM,
            f"--rule={rule}",
            f"--hurry={hurry}",
            f"--applied={applied}",
            environ=environ,
        )
        job.wait_for_step(30)
        job.start_server(2)
        job.wait_for_summary(lambda summary: len(summary["servers"]["owners"]) == 3, 40)
        job.wait_for_step(60)
        kill_between_saves(job, applied, tmp_path / "model")
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
    slots = tmp_path / "slots.json"
    slots.write_text(json.dumps(surviving(applied)))
    words = run_alone(*PROGRAM, f"--rule={rule}", f"--slots={slots}")
    alone = json.loads(words.partition("penstock-result ")[2])
    assert 0 < result["users"] == alone["users"]
    assert result["checksum"] == alone["checksum"], "another model than one process trains"
