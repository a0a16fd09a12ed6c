"""Writing into the memory of another process: process_vm_writev(2).

A local worker has its batch in the training process's pinned memory so, and the copy is the
worker's work. The kernel allows it to whom it allows to trace the other process: with Yama, as most
distributions have it, only to those whom that process has named (`allow_descendants`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

IOV_MAX: Final = 1000
_PR_SET_PTRACER: Final = 0x59616D61


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc: Final = ctypes.CDLL(None, use_errno=True)


def allow_descendants() -> None:
    """Let the processes that this one has started, and theirs, write to its memory.

    There is one such permission for each process, and the last one counts. Where there is no Yama
    it is not needed, and where it is not given the write fails: so nothing is made of the answer.
    """
    _libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getpid()), *[ctypes.c_ulong(0)] * 3)


def process_vm_writev(pid: int, local: Any, count: int, address: int, size: int) -> int:
    """One call of the system; returns the bytes written.

    Raises:
        OSError: none were: EPERM (not allowed), ENOSYS (not there), EFAULT, ESRCH.
    """
    try:
        function = _libc.process_vm_writev
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    function.restype = ctypes.c_ssize_t
    remote = _Iovec(address, size)
    arguments = (local, ctypes.c_ulong(count), ctypes.byref(remote), ctypes.c_ulong(1))
    written: int = function(ctypes.c_int(pid), *arguments, ctypes.c_ulong(0))
    if written < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return written


class RemoteWriter:
    """Writes to one process, as long as that lives."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where it lives no more, or the system cannot say whether it does."""
        self._pid = pid
        self._alive = os.pidfd_open(pid)

    def write(self, address: int, parts: Sequence[Any]) -> None:
        """Have contiguous buffers one behind the other at an address of the other process.

        Raises:
            OSError: not all of it could be written.
        """
        pieces = [piece for part in parts if (piece := _piece(part))[1]]
        while pieces:
            poll = select.poll()
            poll.register(self._alive, select.POLLIN)
            if poll.poll(0):  # its number may be another process's by now
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
            now = pieces[:IOV_MAX]
            size = sum(length for _, length in now)
            local = (_Iovec * len(now))(*[_Iovec(*piece) for piece in now])
            written = process_vm_writev(self._pid, local, len(now), address, size)
            if not written:
                raise OSError(errno.EIO, "nothing was written")
            address += written
            pieces = _after(pieces, written)

    def close(self) -> None:
        """Let go of the process."""
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


def _piece(part: Any) -> tuple[int, int]:
    array = part if isinstance(part, np.ndarray) else np.frombuffer(part, np.uint8)
    return array.__array_interface__["data"][0], array.nbytes


def _after(pieces: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    for at, (base, length) in enumerate(pieces):
        if count < length:
            return [(base + count, length - count), *pieces[at + 1 :]]
        count -= length
    return []
