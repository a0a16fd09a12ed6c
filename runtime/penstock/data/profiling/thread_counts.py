"""What the system counts of the thread that asks; 0 where it does not say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

_usage: Callable[[], Any] | None = None
with contextlib.suppress(ImportError, AttributeError):
    import resource

    _usage = partial(resource.getrusage, resource.RUSAGE_THREAD)


def faults() -> int:
    """Pages that it has filled or found in memory."""
    return int(_usage().ru_minflt) if _usage is not None else 0


def blocks_read() -> int:
    """Blocks of 512 bytes that it has read from storage."""
    return int(_usage().ru_inblock) if _usage is not None else 0
