"""What a process waits for a core is told apart from what it waits for anything else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.job.protocol import TrainingProcess
from penstock.trainer.standstill.run_queue import PAUSE_SECONDS, RunQueues, times_of

SPINS = "while True: pass"
WAITS_FOR_ONE = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {SPINS!r}])
"""
SLEEPS = "import time; time.sleep(600)"
ON_CORE = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"


@contextmanager
def on_one_core(*programs: str) -> Iterator[list[int]]:
    """Programs that have one core together, and what they start."""
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", ON_CORE + program], start_new_session=True)
        for program in programs
    ]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()


class Pauses:
    """One process that has taken no step since some moment."""

    def __init__(self, pid: int) -> None:
        self.queues = RunQueues()
        self.pid = pid
        self.last_step = time.monotonic() - 2 * PAUSE_SECONDS

    def queued(self) -> float:
        return self.noted().queued

    def noted(self) -> TrainingProcess:
        process = TrainingProcess(
            pid=self.pid, seconds=60.0, idle=time.monotonic() - self.last_step
        )
        noted = self.queues.note((process,))
        assert noted is not None
        return noted[0]


def test_who_shares_a_core_waits_for_it_and_who_sleeps_does_not() -> None:
    with on_one_core(SPINS, SPINS, SPINS, SLEEPS) as pids:
        starved, sleeps = Pauses(pids[0]), Pauses(pids[3])
        assert (starved.queued(), sleeps.queued()) == (0.0, 0.0), "what was before is not known"
        while starved.queued() < 1.0:
            time.sleep(0.1)
        assert sleeps.queued() < 0.5
        while starved.noted().used < 0.2:
            time.sleep(0.1)
        assert sleeps.noted().used < 0.1


def test_the_wait_of_what_a_process_has_started_is_its_own() -> None:
    with on_one_core(SPINS, SPINS, WAITS_FOR_ONE) as pids:
        waits = Pauses(pids[2])
        while len({pid for pid, _ in times_of(pids[2])}) < 2:
            time.sleep(0.02)
        waits.queued()
        while waits.queued() < 1.0:
            time.sleep(0.1)


def test_a_step_begins_anew() -> None:
    with on_one_core(SPINS, SPINS) as pids:
        one = Pauses(pids[0])
        one.queued()
        while one.queued() < 0.5:
            time.sleep(0.1)
        one.last_step = time.monotonic() - PAUSE_SECONDS - 1
        assert one.queued() == 0.0


def test_of_a_process_that_is_gone_nothing_is_said() -> None:
    with on_one_core(SLEEPS) as pids:
        one = Pauses(pids[0])
    assert one.queued() == 0.0
    assert one.queued() == 0.0
