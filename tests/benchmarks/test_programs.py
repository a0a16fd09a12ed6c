"""Processes that benchmarks have started are gone at their end, whether they want to or not."""

from __future__ import annotations

import signal
import subprocess

from benchmarks import programs

READY = "trap '{}' TERM; echo ready; while :; do sleep 0.02; done"


def started(command: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def test_who_is_asked_ends_by_itself_and_who_does_not_is_killed() -> None:
    polite, deaf = started(READY.format("exit 3")), started(READY.format(""))
    programs.end(polite, seconds=60)
    programs.end(deaf, seconds=0.1)
    assert (polite.returncode, deaf.returncode) == (3, -signal.SIGKILL)


def test_who_has_ended_is_ended() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    programs.end(gone)
    programs.kill(gone)
    assert gone.returncode == 0
