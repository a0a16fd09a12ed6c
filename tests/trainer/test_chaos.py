"""A few random faults in a row on plain processes: the short form of ``benchmarks.chaos``."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, running_job
from benchmarks.elastic.steps import longest_gap, read_steps

EPOCHS = 6
LEASE_SECONDS = 8
FAULTS = 3


class Chaos:
    """Strikes one job; every fault leaves it whole again."""

    def __init__(self, job: Job, chance: random.Random) -> None:
        self._job = job
        self._chance = chance
        self.faults: dict[str, Callable[[int], None]] = {
            "kill the worker": self._kill_worker,
            "kill the program": self._kill_program,
            "kill the trainer": self._kill_trainer,
            "stop the program for a moment": self._freeze,
        }

    def start_worker(self, rank: int) -> None:
        self._job.start_worker(
            rank,
            sys.executable,
            "-m",
            "benchmarks.elastic.script",
            f"--log={self._job.folder}",
            f"--epochs={EPOCHS}",
            "--slots=4",
            "--slot-seconds=0.06",
            f"--hurry={self._job.folder / 'hurry'}",
        )

    def strike(self, fault: str) -> None:
        self.faults[fault](self._chance.randrange(2))
        self._job.wait_for_world(2, timeout=45)

    def _kill_worker(self, rank: int) -> None:
        self._job.kill(rank)
        self.start_worker(rank)

    def _kill_program(self, rank: int) -> None:
        self._job.training_process(rank).kill()
        self._job.workers[rank].wait(10)
        self.start_worker(rank)

    def _kill_trainer(self, rank: int) -> None:
        self._job.kill_trainer()
        start_trainer(self._job)

    def _freeze(self, rank: int) -> None:
        program = self._job.training_process(rank)
        program.send_signal(signal.SIGSTOP)
        time.sleep(2)
        program.send_signal(signal.SIGCONT)


def start_trainer(job: Job) -> None:
    job.start_trainer("--workers=2", f"--lease-seconds={LEASE_SECONDS}")


@pytest.mark.slow
def test_random_faults_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    with running_job(tmp_path) as job:
        start_trainer(job)
        chaos = Chaos(job, chance)
        for rank in range(2):
            chaos.start_worker(rank)
        job.wait_for_world(2, timeout=45)
        began = time.time()
        done = []
        for _ in range(FAULTS):
            fault = chance.choice(list(chaos.faults))
            chaos.strike(fault)
            done.append(fault)
        calm = time.time()
        (tmp_path / "hurry").touch()
        assert set(job.exit_codes(timeout=60).values()) == {0}, f"{done}\n{job.logs()}"
        result = job.result()
        assert result["samples_seen"] == 1200 * EPOCHS, done
        assert result["samples_lost"] == result["samples_repeated"] == 0, done
        stall = longest_gap(read_steps(tmp_path.glob("steps-*.jsonl")), began, calm)
        assert stall < LEASE_SECONDS + 5, done
