"""A program's place in a group of one machine: found, kept while it runs, found again if lost."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pydantic import BaseModel

from penstock.crds import environment as names
from penstock.data.interception import environment
from penstock.data.protocol import InputOptions
from penstock.data.share_keeper import HELLO_SECONDS, MAX_LINE, connect, start
from penstock.data.share_places import LOG, STARTING, group_folder, open_lock

logger = logging.getLogger(__name__)

START_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1
AGAIN_SECONDS: Final = 0.5


class GroupError(ValueError):
    """A program cannot share; says why, and what to do."""


class Membership:
    """One program in a group, while it is entered."""

    def __init__(
        self, group: str, data_workers: int, options: InputOptions,
        environ: Mapping[str, str] = os.environ,
    ) -> None:  # fmt: skip
        """Raises GroupError: there is no place for a group to meet."""
        try:
            self._folder = group_folder(group, environ)
        except OSError as error:
            raise GroupError(f"--share: {error}") from error
        self._said = {
            "data_workers": data_workers,
            "options": options.model_dump(mode="json"),
        }
        self._environ = dict(environ)
        self._told: dict[str, str] = {}
        self._sock: socket.socket | None = None
        self._keeping: asyncio.Task[None] | None = None

    def environ(self) -> dict[str, str]:
        """The program's environment.

        Hashes of texts are the same in all programs of a group, so that sets are pickled alike.
        """
        return environment({"PYTHONHASHSEED": "0", **self._environ, **self._told})

    async def __aenter__(self) -> Self:
        """Raises GroupError."""
        self._sock, self._told = await asyncio.to_thread(join, self._folder, self._said)
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        if self._sock is not None:
            self._sock.close()

    async def _keep(self) -> None:
        """Have another keeper started where this one is lost."""
        loop = asyncio.get_running_loop()
        while True:
            assert self._sock is not None, "it was joined"
            self._sock.setblocking(False)
            with contextlib.suppress(OSError):
                await loop.sock_recv(self._sock, 1)  # which ends with the other end
            self._sock.close()
            await asyncio.sleep(AGAIN_SECONDS)
            logger.warning("who keeps the group's data workers is lost: another is started")
            try:
                self._sock, told = await asyncio.to_thread(join, self._folder, self._said)
            except GroupError as error:
                logger.warning("the program goes on without the group: %s", error)
                return
            # Whatever else it says, as of weights, the program keeps what it was told first.
            place = (names.DATA_ADDRESS, names.JOB_TOKEN)
            if any(told.get(name) != self._told.get(name) for name in place):
                logger.warning("the group has another address now: the program goes on without it")
                return


class _Answer(BaseModel):
    """What a keeper says: what is wrong, or what a program is to find in its environment."""

    error: str | None = None
    environ: dict[str, str] | None = None


def join(folder: Path, said: dict[str, Any]) -> tuple[socket.socket, dict[str, str]]:
    """Connect to a group's keeper, which is started where there is none.

    Gives the connection, to be kept, and what the program is to find in its environment.

    Raises:
        GroupError: there is none, it refuses, or this process cannot look for it.
    """
    deadline = time.monotonic() + START_SECONDS
    try:
        while time.monotonic() < deadline:
            sock = connect(folder)
            if sock is None:
                _start_once(folder)
                time.sleep(LOOK_SECONDS)
                continue
            try:
                told = _ask(sock, said, max(time.monotonic() + HELLO_SECONDS, deadline))
            except BaseException:
                sock.close()
                raise
            if told is not None:
                return sock, told
            sock.close()
            time.sleep(LOOK_SECONDS)
    except OSError as error:
        raise GroupError(f"--share: {error}") from error
    raise GroupError(
        f"--share: the group's data workers have not started in {START_SECONDS:.0f} s; see "
        f"{folder / LOG}"
    )


def _ask(sock: socket.socket, said: dict[str, Any], deadline: float) -> dict[str, str] | None:
    """What a keeper tells a program; None: it was about to end, and says nothing.

    Raises:
        GroupError: it refuses, or is no keeper of this release.
    """
    line = bytearray()
    try:
        sock.sendall(json.dumps(said).encode() + b"\n")
        while not line.endswith(b"\n") and len(line) <= MAX_LINE:
            sock.settimeout(max(deadline - time.monotonic(), LOOK_SECONDS))
            piece = sock.recv(MAX_LINE)
            if not piece or time.monotonic() > deadline:
                return None
            line += piece
    except OSError:
        return None
    try:
        answer = _Answer.model_validate_json(bytes(line))
    except ValueError:
        answer = _Answer()
    if answer.error is not None:
        raise GroupError(f"--share: {answer.error}")
    if answer.environ is None:
        raise GroupError(
            f"--share: what keeps the group answers {bytes(line[:80])!r}, as no keeper of this "
            "release does: end the group's programs, or name another group"
        )
    return answer.environ


def _start_once(folder: Path) -> None:
    """Start a keeper unless somebody else is at it. Raises OSError."""
    lock = open_lock(folder / STARTING)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if (sock := connect(folder)) is not None:
            sock.close()
            return
        start(folder)
        until = time.monotonic() + HELLO_SECONDS
        while (sock := connect(folder)) is None and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if sock is not None:
            sock.close()
    finally:
        os.close(lock)
