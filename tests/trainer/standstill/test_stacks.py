"""Stacks of real processes: of what runs, what is stopped, and what is no Python any more."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import penstock.data.hook
from penstock.job.protocol import ProcessLook
from penstock.trainer.standstill import stacks
from penstock.trainer.standstill.stack import Look, movement
from penstock.trainer.standstill.stacks import FOLDER, Stacks

HOOK = str(Path(next(iter(penstock.data.hook.__path__))))
SECONDS = 2.0
WAITS = """
import sys, threading
def wait_for_ever():
    print("ready", flush=True)
    threading.Event().wait()
wait_for_ever()
"""
WAITS_FOR_A_CHILD = """
import subprocess, sys
child = "import os, time\\nwhile True: os.write(1, b'x' * 65536); time.sleep(0.05)"
process = subprocess.Popen([sys.executable, "-S", "-c", child], stdout=subprocess.DEVNULL)
print("ready", flush=True)
process.wait()
"""
EVALUATES = """
def forward(): return sum(range(2000))
def evaluate():
    while True: forward(), sum(range(20000))
print("ready", flush=True)
evaluate()
"""
SPINS = """
def spin():
    number = 1
    while True:
        number = number * 3 % 1000003
print("ready", flush=True)
spin()
"""
MANY_THREADS = """
import json, threading
def calls(depth): return depth and calls(depth - 1)
def work():
    while True:
        calls(60)
        json.dumps({"a": [1, [2]]})
        eval("sum(x for x in range(20))")
def begin():
    while True:
        thread = threading.Thread(target=calls, args=(30,))
        thread.start()
        thread.join()
for target in (work, work, work, begin, begin):
    threading.Thread(target=target, daemon=True).start()
print("ready", flush=True)
work()
"""
WAITS_WITH_ANOTHER = """
import threading
def stand_beside(): threading.Event().wait()
def wait_for_ever():
    threading.Thread(target=stand_beside, daemon=True).start()
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


def test_looking_ends_no_process_whose_threads_work(found: Stacks) -> None:
    with running(found, MANY_THREADS) as pid:
        for _ in range(1000):  # of all threads, some twenty of them were enough
            os.kill(pid, stacks.SIGNAL)
            time.sleep(0.003)
        while not (one := look(found, pid)).frames:
            assert one.state != "Z", "it has crashed"


def test_who_is_ended_shows_all_its_threads_and_who_is_looked_at_the_main_one(
    found: Stacks, caplog: pytest.LogCaptureFixture
) -> None:
    with running(found, WAITS_WITH_ANOTHER) as pid:
        while not look(found, pid).frames:
            pass
        assert "wait_for_ever" in caplog.text
        assert "stand_beside" not in caplog.text
        while "stand_beside" not in caplog.text:
            asyncio.run(found.tell_all_threads([pid]))
        assert f"all threads of process {pid}" in caplog.text


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


def test_who_works_is_in_several_places_within_one_look_and_a_loop_is_not(found: Stacks) -> None:
    with running(found, EVALUATES) as pid:
        while not look(found, pid).wanders:
            pass
    with running(found, SPINS) as pid:
        while "spin" not in [frame.function for frame in look(found, pid).frames]:
            pass
        assert not any(look(found, pid).wanders for _ in range(3))


def test_a_process_that_is_gone_shows_nothing(found: Stacks) -> None:
    with running(found, WAITS) as pid:
        pass
    assert asyncio.run(found.look([pid])) == ()


def test_the_hook_has_the_same_signal_and_folder() -> None:
    text = (Path(HOOK) / "sitecustomize.py").read_text()
    assert f"faulthandler.register({stacks.SIGNAL}, file=high, all_threads=False)" in text
    assert f"faulthandler.register({stacks.ALL_THREADS}, file=high, all_threads=True)" in text
    assert f'os.environ["{FOLDER}"]' in text


def looks(found: Stacks, pid: int) -> list[Look]:
    """Two looks, between which the process had ``SECONDS``."""
    said = [look(found, pid)]
    time.sleep(SECONDS)
    said.append(look(found, pid))
    return [
        Look(
            one.state,
            one.cpu_seconds,
            (),
            one.tree_cpu_seconds,
            one.tree_io_bytes,
            one.wakeups,
            one.sleeps_in,
        )
        for one in said
    ]


def test_looking_at_a_process_does_not_make_it_move(found: Stacks) -> None:
    with running(found, WAITS) as pid:
        for _ in range(2):  # it begins
            while not look(found, pid).frames:
                pass
        first = look(found, pid)
        for _ in range(3):
            last = look(found, pid)
        assert last.wakeups - first.wakeups < 3, f"asked for {3 * stacks.STACKS} stacks"
        assert last.tree_io_bytes - first.tree_io_bytes < 1000


def test_one_in_a_lock_does_not_move_and_one_whose_child_writes_does(found: Stacks) -> None:
    with running(found, WAITS) as pid:
        while not look(found, pid).frames:  # it begins, and uses CPU for that
            pass
        assert movement(looks(found, pid), SECONDS) == ""
    with running(found, WAITS_FOR_A_CHILD) as pid:
        try:
            while not (said := movement(looks(found, pid), SECONDS)):
                pass  # the child has yet to begin
            assert "started" in said
        finally:
            children = psutil.Process(pid).children()
            os.kill(pid, signal.SIGSTOP)  # it would end with its child
            for child in children:
                child.kill()
