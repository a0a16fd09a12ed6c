"""glibc's allocator for programs that use large arrays again and again.

It gives back what is larger than 128 KiB, or lies at the top of its heap, and asks for it again for
the next batch: a third of what a data worker that decodes images or a parameter server does is then
page faults. Another C library has another allocator, which is left as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Final

_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES, _TOP_PAD_BYTES = 32 << 20, 256 << 20, 64 << 20
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3

ALLOCATOR: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(_MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_TRIM_THRESHOLD_BYTES),
    "MALLOC_TOP_PAD_": str(_TOP_PAD_BYTES),
}
"""The environment of a program that has not begun yet: its child processes get it too."""


def keep_freed_memory() -> None:
    """The same for this process, from now on."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def begin_again() -> None:
    """Have this process begin with it, its own children too; returns where it did.

    Whatever was imported is imported once more, so the sooner the better.
    """
    missing = {name: value for name, value in ALLOCATOR.items() if name not in os.environ}
    if missing and sys.platform == "linux":
        os.execve(  # noqa: S606 - our own command line, no shell
            sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **missing}
        )
