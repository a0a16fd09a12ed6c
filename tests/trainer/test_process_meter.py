"""What a program uses, with all that it started."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from penstock.trainer.process_meter import ProcessMeter

PROGRAM = textwrap.dedent(
    """
    import mmap, os, sys
    mine = b"x" * (64 << 20)
    shared = mmap.mmap(-1, 64 << 20)
    shared.write(b"y" * (64 << 20))
    done, say = os.pipe()
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            shared[:]  # for a moment it has another one
            os.write(say, b".")
            break
    else:
        left = int(sys.argv[1])
        while left:
            left -= len(os.read(done, left))
        print("ready", flush=True)
    sys.stdin.read()
    """
)


@pytest.mark.parametrize("forks", [0, 4])
def test_memory_that_processes_share_counts_once(forks: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(forks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        usage = ProcessMeter(lambda: [program.pid]).read()
        assert program.stdin is not None
        program.stdin.close()
    assert usage is not None
    assert 128 << 20 < usage.memory_bytes < 256 << 20


def test_a_process_that_is_gone_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        meter = ProcessMeter(lambda: [program.pid])
        program.communicate(b"\n")
    assert meter.read() is None
