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

from penstock.crds import environment as names
from penstock.data.interception import environment
from penstock.data.protocol import InputOptions
from penstock.data.share_keeper import HELLO_SECONDS, connect, start
from penstock.data.share_places import LOG, STARTING, group_folder

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
            # The folder of weights is another keeper's, and what has it keeps it.
            place = (names.DATA_ADDRESS, names.JOB_TOKEN)
            if any(told.get(name) != self._told.get(name) for name in place):
                logger.warning("the group has another address now: the program goes on without it")
                return


def join(folder: Path, said: dict[str, Any]) -> tuple[socket.socket, dict[str, str]]:
    """Connect to a group's keeper, which is started where there is none.

    Gives the connection, to be kept, and what the program is to find in its environment.

    Raises:
        GroupError: there is none, or it refuses.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        sock = connect(folder)
        if sock is None:
            _start_once(folder)
            time.sleep(LOOK_SECONDS)
            continue
        try:
            sock.sendall(json.dumps(said).encode() + b"\n")
            sock.settimeout(max(HELLO_SECONDS, deadline - time.monotonic()))
            answer = json.loads(sock.makefile().readline() or "null")
        except (OSError, ValueError):
            answer = None
        if answer is None:  # it was about to end
            sock.close()
            time.sleep(LOOK_SECONDS)
            continue
        if "error" in answer:
            sock.close()
            raise GroupError(f"--share: {answer['error']}")
        return sock, answer["environ"]
    raise GroupError(
        f"--share: the group's data workers have not started in {START_SECONDS:.0f} s; see "
        f"{folder / LOG}"
    )


def _start_once(folder: Path) -> None:
    """Start a keeper unless somebody else is at it."""
    with (folder / STARTING).open("w") as lock:
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
