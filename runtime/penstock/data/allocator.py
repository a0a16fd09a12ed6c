"""glibc's allocator for programs that use large arrays again and again.

It gives back what is larger than 128 KiB, or lies at the top of its heap, and asks for it again for
the next batch: a third of what a data worker that decodes images or calls an encoder, or a
parameter server, does is then page faults. Another C library has another allocator, which is left
as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Final

_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES, _TOP_PAD_BYTES = 32 << 20, 256 << 20, 64 << 20
_OPTIONS: Final = (
    ("MALLOC_MMAP_THRESHOLD_", -3, _MMAP_THRESHOLD_BYTES),
    ("MALLOC_TRIM_THRESHOLD_", -1, _TRIM_THRESHOLD_BYTES),
    ("MALLOC_TOP_PAD_", -2, _TOP_PAD_BYTES),
)
"""Variables, numbers for ``mallopt``, and values."""

ALLOCATOR: Final = {name: str(value) for name, _, value in _OPTIONS}
"""The environment of a program that has not begun yet: its child processes get it too."""


def keep_freed_memory(most_bytes: int = _TRIM_THRESHOLD_BYTES) -> None:
    """The same for this process, from now on; what its environment says is left as it is.

    ``most_bytes``: so much of its heap it keeps at most.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, option, value in _OPTIONS:
            if name not in os.environ:
                mallopt(option, min(value, most_bytes))


def begin_again() -> None:
    """Have this process begin with it, its own children too; returns where it did.

    Whatever was imported is imported once more, so the sooner the better.
    """
    missing = {name: value for name, value in ALLOCATOR.items() if name not in os.environ}
    if missing and sys.platform == "linux":
        os.execve(  # noqa: S606 - our own command line, no shell
            sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **missing}
        )
