"""A process that ends with who started it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap

import psutil
import pytest

from penstock.base.parent_death import die_with_parent
from tests.data.planes import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


def test_a_child_is_killed_when_its_parent_is() -> None:
    code = textwrap.dedent("""
        import subprocess, sys, time
        from penstock.base.parent_death import die_with_parent
        child = subprocess.Popen(["sleep", "600"], preexec_fn=die_with_parent)
        print(child.pid, flush=True)
        time.sleep(600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_nothing_is_loaded_between_fork_and_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("the loader's lock may be held by a thread that was not forked")

    monkeypatch.setattr(ctypes, "CDLL", load)
    child = subprocess.Popen(["true"], preexec_fn=die_with_parent)  # noqa: PLW1509 - it is tested
    assert child.wait() == 0
