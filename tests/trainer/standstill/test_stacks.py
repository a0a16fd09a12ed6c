"""Stacks of real processes: of what runs, what is stopped, and what is no Python any more."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock.data.hook
from penstock.job.protocol import ProcessLook
from penstock.trainer.standstill import stacks
from penstock.trainer.standstill.stacks import FOLDER, Stacks

HOOK = str(Path(next(iter(penstock.data.hook.__path__))))
WAITS = """
import sys, threading
def wait_for_ever():
    print("ready", flush=True)
    threading.Event().wait()
wait_for_ever()
"""
BECOMES_ANOTHER = """
import os
print("ready", flush=True)
os.execvp("sleep", ["sleep", "600"])
"""


@contextmanager
def running(found: Stacks, program: str) -> Iterator[int]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": HOOK, FOLDER: found.folder}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        assert process.poll() is None, "it lives on"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def found() -> Iterator[Stacks]:
    one = Stacks()
    yield one
    one.close()


def look(found: Stacks, pid: int) -> ProcessLook:
    (one,) = asyncio.run(found.look([pid]))
    return one


def test_a_process_shows_where_it_waits_as_often_as_it_is_asked(
    found: Stacks, caplog: pytest.LogCaptureFixture
) -> None:
    with running(found, WAITS) as pid:
        for _ in range(2):
            one = look(found, pid)
            while not one.frames:  # a busy machine: it had no time to write
                one = look(found, pid)
            assert "wait_for_ever" in [frame.function for frame in one.frames]
    assert caplog.text.count("takes no more steps") == 1, "the log has it once"


def test_a_stopped_process_is_known_by_its_state(found: Stacks) -> None:
    with running(found, WAITS) as pid:
        os.kill(pid, signal.SIGSTOP)
        while (one := look(found, pid)).state not in ("T", "t"):
            pass
        assert one.state == "T"
        os.kill(pid, signal.SIGCONT)


def test_a_process_that_became_another_program_is_not_ended_by_the_question(found: Stacks) -> None:
    with running(found, BECOMES_ANOTHER) as pid:
        while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
            pass
        assert look(found, pid).frames == ()


def test_a_process_that_is_gone_shows_nothing(found: Stacks) -> None:
    with running(found, WAITS) as pid:
        pass
    assert asyncio.run(found.look([pid])) == ()


def test_the_hook_has_the_same_signal_and_folder() -> None:
    text = (Path(HOOK) / "sitecustomize.py").read_text()
    assert f"faulthandler.register({stacks.SIGNAL}," in text
    assert f'os.environ["{FOLDER}"]' in text
