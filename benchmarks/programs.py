"""Starting what is measured, as programs that print one JSON object, and ending it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

PENSTOCK: Final = str(Path(sys.executable).with_name("penstock"))
"""The command of the environment that measures."""
HOG: Final = (sys.executable, "-c", "while True: pass")
"""Something that always wants a core."""
END_SECONDS: Final = 20.0


def answer_of(command: Sequence[str], limit_seconds: float) -> Any:
    """What a program says at its end.

    Raises:
        CalledProcessError: it failed.
        TimeoutExpired: it took too long.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit_seconds, check=True
    )
    return json.loads(done.stdout)


def profiling(path: Path, program: Sequence[str], *options: str) -> list[str]:
    """The command that runs a program and writes its profile there."""
    return [PENSTOCK, "profile", *options, "-o", str(path), "--", *program]


def end(*processes: subprocess.Popen[Any], seconds: float = END_SECONDS) -> None:
    """Ask processes to end, all of them at once, and outlast them."""
    for process in processes:
        process.terminate()
    outlast(*processes, seconds=seconds)


def outlast(*processes: subprocess.Popen[Any], seconds: float = END_SECONDS) -> None:
    """Wait until processes have ended; those that have not after so many seconds are killed."""
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill(process)


def kill(*processes: subprocess.Popen[Any]) -> None:
    """Kill -9, and wait until they are gone."""
    for process in processes:
        process.kill()
    for process in processes:
        process.wait(END_SECONDS)
