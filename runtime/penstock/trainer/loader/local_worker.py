"""What a local worker of a session lets go of before it makes batches.

Forked from the training process, it holds all that this had open, the group's connections too. As
long as it holds them they stay open, whoever closes them or dies: the other members would wait for
one that has left. So each TCP connection becomes a closed one in the worker. Nothing can be shared
through them in any case: a dataset that is connected to a storage connects again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.data.local.process import Prepare

_OPEN_FILES: Final = (Path("/proc/self/fd"), Path("/dev/fd"))


@dataclass(frozen=True)
class SessionWorkerSetup:
    """What is done in each local worker, given its number, before it makes batches.

    Attributes:
        setup: what PyTorch does there.
        forked: whether it has what the training process had open.
    """

    setup: Prepare
    forked: bool

    def __call__(self, number: int) -> None:
        """In the worker of that number."""
        signal.signal(signal.SIGTERM, _leave_to_session)
        if self.forked:
            sever_connections()
        self.setup(number)


def _leave_to_session(number: int, frame: object) -> None:
    """SIGTERM reaches all processes of a pod: the step in hand is finished, and needs batches."""


def sever_connections() -> None:
    """Have every TCP socket of this process be one whose other end is closed.

    File numbers stay taken: objects that believe they own one do not close somebody else's file.
    """
    here, there = socket.socketpair()
    there.close()
    with here:
        for number in _open_files():
            if _is_tcp(number):
                os.dup2(here.fileno(), number, inheritable=False)


def _open_files() -> list[int]:
    folder = next((one for one in _OPEN_FILES if one.is_dir()), None)
    return [] if folder is None else [int(one.name) for one in folder.iterdir()]


def _is_tcp(number: int) -> bool:
    with contextlib.suppress(OSError):  # closed since it was listed
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            with socket.socket(fileno=os.dup(number)) as one:
                inet = one.family in (socket.AF_INET, socket.AF_INET6)
                return inet and one.type == socket.SOCK_STREAM
    return False
