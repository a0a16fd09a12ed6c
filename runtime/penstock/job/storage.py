"""What a session does where a disk fails: it says so once, tries again, and trains on.

A full or hanging disk may take checkpoints and step logs from a job, never the training itself.
What could not be written is tried again with growing pauses, from a memory that does not grow; only
at the end, where a trained model would be lost, is there an error, after a time in which room may
be made.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.job.folder_mark import FolderInUseError

RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 15.0)
LAST_SECONDS: Final = 600.0
"""How long the trained model is tried to be saved at the end; and how long one write may take."""
STALLED_SECONDS: Final = 30.0
"""For so long a disk may take nothing of what the training waits for."""
TOO_SLOW: Final = "the disk takes too little, and there is no memory for a copy"
MEND: Final = "make room there, or mend the disk"
BEGIN_ANEW: Final = "delete the old checkpoints to begin anew, or name another checkpoint_dir"
"""What to do where checkpoints are of another model or other data."""

_MAY_HEAL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})


class Backoff:
    """When something that failed is tried again."""

    def __init__(self, seconds: Sequence[float] = RETRY_SECONDS) -> None:
        self._seconds = seconds
        self._failures = 0  # one after the other
        self._at = float("-inf")

    @property
    def pause(self) -> float:
        """Seconds between the newest failure and the next attempt."""
        return self._seconds[min(max(self._failures, 1), len(self._seconds)) - 1]

    @property
    def waits(self) -> bool:
        """Whether it is too early for another attempt."""
        return time.monotonic() < self._at

    def failed(self) -> None:
        """It failed, once more."""
        self._failures += 1
        self._at = time.monotonic() + self.pause

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        self._failures, self._at = 0, float("-inf")


def cause(error: BaseException) -> str:
    """An error in words, without the names of files that come and go."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or repr(error)


def may_heal(error: OSError) -> bool:
    """Whether time, or somebody who makes room, may mend it; a wrong path stays wrong."""
    return error.errno in _MAY_HEAL


def advice(error: BaseException) -> str:
    """What to do about an error of a folder or its disk."""
    return "name another checkpoint_dir" if isinstance(error, FolderInUseError) else MEND


def not_saved(folder: Path, why: str, what_to_do: str = MEND) -> str:
    """What is said while checkpoints cannot be written."""
    return (
        f"no checkpoint is written to {folder}: {why}; {what_to_do}: it is tried again, and the "
        "checkpoints that are there stay"
    )


def not_on_disk(folder: Path, why: str, what_to_do: str = MEND) -> str:
    """What is said when the trained model is lost."""
    return (
        f"the trained model is not on disk in {folder}: {why}; {what_to_do}, and run this again: "
        "it goes on from the newest checkpoint"
    )
