"""Steps that take their time while a test still does something to the job."""

from __future__ import annotations

import time
from pathlib import Path


def linger(hurry: Path | None, seconds: float) -> None:
    """Wait for the file, and not for long: members join between two steps."""
    until = time.monotonic() + seconds
    while hurry is not None and time.monotonic() < until and not hurry.exists():
        time.sleep(0.02)
