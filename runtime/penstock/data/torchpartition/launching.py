"""Run a program of which every loader's steps are looked at, and gather what was found.

The program is a child with the same terminal and exit code as alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.crds import environment as names
from penstock.data import variables
from penstock.data.child_program import end_of, signals_to, stop_program
from penstock.data.hooked import INTERCEPT, hooked
from penstock.data.torchpartition.looking import FOLDER, read

POLL_SECONDS: Final = 0.1


def run_looked_at(
    command: Sequence[str], environ: Mapping[str, str], *, stop: bool, quiet: bool
) -> tuple[int, list[dict[str, Any]]]:
    """Run it to its end, or with ``stop`` until a loader was looked at.

    ``quiet``: what it prints goes to stderr.

    Returns:
        Its exit code, as a shell has it (0 if it was stopped), and what was found of each loader.

    Raises:
        OSError: it cannot be started.
        VariableError: a variable of ``environ`` has a value that cannot be meant.
    """
    variables.check({**environ, names.PARTITION: "auto"})
    with tempfile.TemporaryDirectory(prefix="penstock-partition-") as folder:
        told = {**hooked(environ), INTERCEPT: "1", names.PARTITION: "auto", FOLDER: folder}
        program = subprocess.Popen(command, env=told, stdout=sys.stderr if quiet else None)
        with signals_to(program):
            while stop and program.poll() is None and not read(Path(folder)):
                time.sleep(POLL_SECONDS)
            if stopped := stop and program.poll() is None:
                stop_program(program)
            code = end_of(program, stopped=stopped)
        return code, read(Path(folder))
