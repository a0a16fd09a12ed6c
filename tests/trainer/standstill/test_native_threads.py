"""Where threads are outside Python: of a real process, and of what Linux may say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.trainer.standstill.native_threads import MAX_THREADS, native_threads
from tests.patience import patient

PROGRAM = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def sleeping() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells it")
def test_each_thread_of_a_process_has_a_line_with_where_it_sleeps(sleeping: int) -> None:
    deadline = time.monotonic() + patient(5)
    while True:
        lines = native_threads(sleeping).splitlines()
        if len(lines) == 2 and all(": S" in line for line in lines):
            break
        assert time.monotonic() < deadline, lines
        time.sleep(0.02)
    assert lines[0].startswith(f"thread {sleeping} (python")
    # A child of this process; the C library is where its threads go to the kernel from.
    forbidden = not _readable(f"/proc/{sleeping}/syscall")
    assert forbidden or all("libc" in line or "ld-musl" in line for line in lines), lines


def _readable(path: str) -> bool:
    try:
        return bool(Path(path).read_text())
    except OSError:
        return False


def test_a_process_that_is_gone_has_no_threads() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert native_threads(process.pid) == ""


def test_what_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    (task / "stat").write_text("7 (a) b) S 1 7 7 0 -1")
    (task / "comm").write_text("a) b\n")
    assert native_threads(7, tmp_path) == "thread 7 (a) b): S"


def test_the_library_is_the_one_that_is_mapped_there(tmp_path: Path) -> None:
    task = tmp_path / "7" / "task" / "9"
    task.mkdir(parents=True)
    (task / "stat").write_text("9 (nccl) S 1")
    (task / "comm").write_text("nccl\n")
    (task / "wchan").write_text("futex_do_wait")
    (task / "syscall").write_text("202 0x1 0x189 0x0 0x0 0x0 0x0 0x7f00 0x2010\n")
    (tmp_path / "7" / "maps").write_text(
        "1000-2000 r-xp 00000000 08:01 11 /lib/libone.so\n"
        "2000-3000 r-xp 00000000 08:01 12 /opt/some where/libnccl.so.2 (deleted)\n"
        "3000-4000 rw-p 00000000 00:00 0 \n"
    )
    assert native_threads(7, tmp_path) == (
        "thread 9 (nccl): S, in the kernel's futex_do_wait, from libnccl.so.2 (deleted)"
    )


def test_of_very_many_threads_the_first_are_told(tmp_path: Path) -> None:
    for number in range(1, MAX_THREADS + 11):
        task = tmp_path / "1" / "task" / str(number)
        task.mkdir(parents=True)
        (task / "stat").write_text(f"{number} (x) R 0")
    lines = native_threads(1, tmp_path).splitlines()
    assert len(lines) == MAX_THREADS + 1
    assert lines[-1] == "and 10 threads more"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["stat", "comm", "wchan", "syscall", "maps"]), st.text(max_size=80))
def test_words_that_nobody_expects_are_taken(tmp_path: Path, name: str, text: str) -> None:
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True, exist_ok=True)
    (task / "stat").write_text("7 (x) S 1")
    path = tmp_path / "7" / "maps" if name == "maps" else task / name
    path.write_bytes(os.fsencode(text.encode("utf-8", "replace").decode()))
    native_threads(7, tmp_path)
    path.unlink(missing_ok=True)
