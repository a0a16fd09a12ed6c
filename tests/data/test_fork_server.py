"""Processes forked for tests behave as those that are started."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.data.hooked import INTERCEPT
from tests import fork_server
from tests.patience import patient

SECONDS = patient(20)
ABOUT = """
import json, os, pickle, sys
class Own:
    pass
own = pickle.loads(pickle.dumps(Own()))
print(json.dumps([sys.argv, os.getcwd(), os.environ.get("ASKED"), type(own).__module__,
                  "torch" in sys.modules, os.getsid(0) == os.getpid()]))
print("beside", file=sys.stderr)
"""


def test_a_program_has_its_arguments_folder_environment_and_output(tmp_path: Path) -> None:
    environ = {**os.environ, "ASKED": "yes"}
    done = fork_server.run(["-c", ABOUT, "a", "b"], cwd=tmp_path, env=environ, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    shown = f'[["-c", "a", "b"], "{tmp_path}", "yes", "__main__", true, false]\n'
    assert (done.stdout, done.stderr) == (shown, "beside\n")


def test_a_script_finds_its_neighbours_and_may_have_a_session_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_test.py").write_text("FOUND = 7")
    script = tmp_path / "train.py"
    script.write_text(
        "import os, neighbour_of_a_test as one\n"
        "print(one.FOUND, __file__, os.getsid(0) == os.getpid())"
    )
    done = fork_server.run([str(script)], timeout=SECONDS, start_new_session=True)
    assert (done.stdout, done.stderr) == (f"7 {script} True\n", "")


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise LookupError('none')", 1, "LookupError: none"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import atexit; atexit.register(print, 'ended', flush=True)", 0, ""),
    ],
)
def test_its_end_is_its_own(program: str, code: int, said: str) -> None:
    done = fork_server.run(["-c", program], timeout=SECONDS)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ("ended\n" if "atexit" in program else "")


def test_it_may_be_waited_for_and_gets_signals() -> None:
    process = fork_server.start(["-c", "print('begun', flush=True); input()"], stdout=-1)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    assert process.wait(SECONDS) == 1, "there is nothing to be read"
    process = fork_server.start(["-c", "import time; time.sleep(600)"])
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(SECONDS) == -signal.SIGTERM
    process.kill()  # nobody


def test_two_draw_other_numbers() -> None:
    program = "import random, numpy as np, torch\n"
    program += "print(random.random(), np.random.rand(), float(torch.rand(())))"
    first, second = (fork_server.run(["-c", program], timeout=SECONDS) for _ in range(2))
    assert not {*first.stdout.split()} & {*second.stdout.split()}


def test_programs_whose_imports_are_others_are_refused() -> None:
    for changed in ({INTERCEPT: "1"}, {"PYTHONPATH": "elsewhere"}):
        with pytest.raises(ValueError, match="not forked"):
            fork_server.start(["-c", ""], env={**os.environ, **changed})
