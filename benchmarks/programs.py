"""Starting what is measured: programs that print one JSON object, with the profiler or without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

PENSTOCK: Final = str(Path(sys.executable).with_name("penstock"))
"""The command of the environment that measures."""
HOG: Final = (sys.executable, "-c", "while True: pass")
"""Something that always wants a core."""


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
