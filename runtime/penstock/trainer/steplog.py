"""A line of JSON for every committed step: when, which, with how many workers, and the losses.

What a person plots and a test compares. Each worker writes its own file, for the slots that it
computed itself, into the folder that ``PENSTOCK_STEP_LOG`` names: put together, the files of all
workers hold every slot of every step. Writing never disturbs the training: a file that cannot be
written is said once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

LOG = logging.getLogger("penstock.session")


class StepLog:
    """The step log of one worker: ``steps-RANK-INCARNATION.jsonl``."""

    def __init__(self, folder: Path, rank: int, incarnation: int) -> None:
        self._path = folder / f"steps-{rank}-{incarnation}.jsonl"
        self._file: TextIO | None = None
        self._usable = True

    def write(self, step: int, world_size: int, losses: Mapping[int, float]) -> None:
        """Note a committed step; ``losses``: by slot, each weighed by its part of the step."""
        if not self._usable:
            return
        entry = {"time": time.time(), "step": step, "world": world_size, "losses": losses}
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", buffering=1)
            self._file.write(json.dumps(entry) + "\n")
        except OSError as error:
            LOG.warning("no step log in %s: %s", self._path, error.strerror)
            self._usable = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
