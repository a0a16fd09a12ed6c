"""The training processes of one pod, as they state themselves to its agent.

`Processes` listens where `penstock.trainer.training_evidence` speaks. Who speaks is not taken from
the statement: Linux writes the sender's process id beside each datagram, and only what the agent's
program started counts. The list is bounded. `Processes.receive` and `Processes.note_ended` change
it; reading it changes nothing and never waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import psutil

from penstock.base.fields import EXACT_INT_MAX
from penstock.base.listener import create_local_listener
from penstock.job.protocol import MAX_PROCESSES, TrainingProcess
from penstock.job.work_source import Part

_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: process, user, group
_MAX_STATEMENT_BYTES: Final = 1024
_MOST_AT_ONCE: Final = 4096
_MOST_ANCESTORS: Final = 256
_MOST_SECONDS: Final = 1e12
_EXCLUSIVE: Final = (Part.SESSION, Part.SERVERS)
"""Parts that are a rank's: two processes of one pod cannot both have one."""


@dataclass
class _Known:
    """What one process has said."""

    part: Part = Part.OWN
    rank: int = 0
    world_size: int = 1
    spoken: bool = False  # of rank and world size
    since: float = 0.0  # its first step as this rank of so many
    last: float = 0.0
    widest: tuple[int, int] = (1, 0)  # world size and rank
    steps: int = 0
    step_seconds: float = 0.0
    saves: bool = False
    gone: bool = False

    def take(self, statement: dict[str, Any], now: float) -> None:
        """Take in a statement. Raises ValueError, TypeError or KeyError for what is none."""
        if "part" in statement:
            self.part = Part(statement["part"])
            return
        standing = rank, world_size = statement["rank"], statement["world_size"]
        if not (type(rank) is type(world_size) is int and 0 <= rank < world_size <= 1 << 20):
            raise ValueError(f"rank {rank!r} of {world_size!r}")
        if not self.spoken or standing != (self.rank, self.world_size):
            self.rank, self.world_size = standing
            self.since = 0.0
            self.spoken = True
            self.widest = max(self.widest, (world_size, rank))
        steps, seconds = statement.get("steps", 0), statement.get("step_seconds", 0.0)
        if type(steps) is int and type(seconds) is float and steps > self.steps and seconds > 0:
            self.steps, self.step_seconds = min(steps, EXACT_INT_MAX), min(seconds, _MOST_SECONDS)
        self.saves = self.saves or statement.get("saves") is True
        if statement["trains"] is True:
            self.since, self.last = self.since or now, now


class Processes:
    """What the processes of one pod have said about themselves; close it at the end."""

    def __init__(self) -> None:
        self.name = ""
        """Of the socket, for the environment of the program; empty where there can be none."""
        self.duplicates: tuple[int, ...] = ()
        """Process ids that had a session open at the same time."""
        self._known: dict[int, _Known] = {}
        self._socket: socket.socket | None = None
        if sys.platform == "linux":
            self._listen()

    def _listen(self) -> None:
        name = f"penstock-agent-{secrets.token_hex(16)}"
        listening = create_local_listener(name, socket.SOCK_DGRAM)
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket, self.name = listening, name

    def fileno(self) -> int:
        """Of the socket, for an event loop; -1 where there is none."""
        return self._socket.fileno() if self._socket is not None else -1

    def receive(self, tree: Collection[int] | None = None) -> None:
        """Take in what has been said. ``tree``: the processes that count; default: descendants."""
        now = time.monotonic()
        for _ in range(_MOST_AT_ONCE):
            if self._socket is None:
                return
            try:
                body, beside, _, _ = self._socket.recvmsg(
                    _MAX_STATEMENT_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            for level, kind, data in beside:
                if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                    pid = _CREDENTIALS.unpack(data)[0]
                    if pid > 0 and (_is_ours(pid) if tree is None else _is_among(pid, tree)):
                        self._take(pid, body, now)

    def _take(self, pid: int, body: bytes, now: float) -> None:
        known = self._known.get(pid)
        if known is None or known.gone:  # another process has the number now
            if known is None and len(self._known) >= MAX_PROCESSES and not self._forget_one():
                return
            known = _Known()
        with contextlib.suppress(ValueError, TypeError, KeyError):
            known.take(json.loads(body), now)
            self._known[pid] = known
        others = [
            other
            for other, said in self._known.items()
            if other != pid and said.part in _EXCLUSIVE and _lives(other)
        ]
        if known.part in _EXCLUSIVE and others:
            self.duplicates = (*sorted(others), pid)[:MAX_PROCESSES]

    def note_ended(self) -> None:
        """Look which processes live no more; what speaks under their numbers then is another."""
        for pid, known in self._known.items():
            known.gone = known.gone or not _lives(pid)

    def read(self, *, gone_too: bool = False) -> tuple[TrainingProcess, ...] | None:
        """The processes that train or have a part in the job's work, and are not known to be gone.

        None where processes cannot speak. ``gone_too``: those that have ended as well, once nobody
        else will speak.
        """
        if not self.name:
            return None
        now = time.monotonic()
        return tuple(
            TrainingProcess(
                pid=pid,
                part=known.part,
                rank=known.rank,
                world_size=known.world_size,
                seconds=max(0.0, known.last - known.since) if known.since else None,
                idle=max(0.0, now - known.last) if known.since else 0.0,
                widest=known.widest[0],
                widest_rank=known.widest[1],
                steps=known.steps,
                step_seconds=known.step_seconds,
                saves=known.saves,
            )
            for pid, known in sorted(self._known.items())
            if gone_too or not known.gone
        )

    def idle_seconds(self) -> float | None:
        """Since the last step of any process that lives; None where none has taken one."""
        now = time.monotonic()
        steps = [known.last for known in self._known.values() if known.since and not known.gone]
        return max(0.0, now - max(steps)) if steps else None

    def _forget_one(self) -> bool:
        """Forget a process that is gone; False if all live."""
        for pid, known in self._known.items():
            if known.gone or not _lives(pid):
                del self._known[pid]
                return True
        return False

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_ours(pid: int) -> bool:
    """Whether this process has started one, itself or through others.

    Its ancestors are looked at and not the whole table of processes, of which a node may have
    thousands: programs speak often. One that is gone by now was short-lived, and counts.
    """
    own = os.getpid()
    try:
        parent = psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
    with contextlib.suppress(psutil.Error):  # it has just lost an ancestor
        for _ in range(_MOST_ANCESTORS):
            if parent in (own, 0):
                return parent == own
            parent = psutil.Process(parent).ppid()
    return False


def _is_among(pid: int, tree: Collection[int]) -> bool:
    return pid in tree or not psutil.pid_exists(pid)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
