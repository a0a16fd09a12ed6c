"""A process that ends with who started it, however that ends: Linux is asked to see to it."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
# Found here, once: between fork and exec nothing may be loaded, since another thread of the parent
# may have held the loader's lock.
_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """In a child that was just forked: have it killed when the thread that forked it is no more."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
