"""What programs of one machine that share have in common: dispatcher and data workers.

The first ``penstock run --share GROUP`` starts it, apart from its own process tree: when one ends
the others have it still. Whoever shares keeps a connection to it, which ends with him however he
ends; some seconds after the last it ends too, and leaves a summary. One that was killed is started
again by those who are left, at the same address and with the same token, which their programs know;
its data workers go on meanwhile, with what they hold, and are the next one's
(`penstock.data.outliving`).

Who says nothing, or what is no request, gets nothing and is sent away; few of them are there at a
time, and none keeps a program out or the group alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from penstock.base.enums import ShareOrder
from penstock.base.log_limit import LogLimit
from penstock.crds import environment as names
from penstock.data.memory import SHARED_SHARE, read_memory
from penstock.data.outliving import ProcessId
from penstock.data.processes import cpu_seconds
from penstock.data.protocol import InputOptions, ShareOptions
from penstock.data.share_places import ALIVE, LOG, SOCKET, STATE, SUMMARY, open_lock
from penstock.data.standalone import LocalDataPlane, check_count, configure_log
from penstock.data.transport.frame import set_send_timeout

logger = logging.getLogger(__name__)

LINGER_SECONDS: Final = 10.0
"""Without anybody who shares; a search that starts one program after the other needs no more."""
HELLO_SECONDS: Final = 10.0
MAX_LINE: Final = 1 << 18
MAX_MEMBERS: Final = 256
MAX_NEWCOMERS: Final = 32
"""That have not said what they want; the oldest goes for another, and asks again if it is one."""


class _State(NamedTuple):
    """What outlives a keeper that is killed."""

    token: str
    port: int = 0
    data_workers: Sequence[ProcessId] = ()
    weights_dir: str = ""


class Keeper:
    """See the module's docstring."""

    def __init__(self, folder: Path, linger_seconds: float = LINGER_SECONDS) -> None:
        self._folder = folder
        self._linger = linger_seconds
        self._newcomers: dict[asyncio.StreamWriter, None] = {}
        self._members: set[asyncio.StreamWriter] = set()
        self._joined: set[asyncio.StreamWriter] = set()
        self._most_members = 0
        self._refusals = LogLimit()
        self._changed = asyncio.Event()
        self._options: InputOptions | None = None
        self._token = ""
        self._plane: LocalDataPlane | None = None
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Serve until nobody shares any more.

        Raises:
            BlockingIOError: another keeper is alive.
        """
        alive = open_lock(self._folder / ALIVE)
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(
            self._serve, path, limit=MAX_LINE, backlog=2 * MAX_NEWCOMERS
        )
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        try:
            async with server:
                waiting = asyncio.create_task(stopped.wait())
                while not stopped.is_set():
                    self._changed.clear()
                    limit = None if self._members else self._linger
                    changing = asyncio.create_task(self._changed.wait())
                    done, _ = await asyncio.wait(
                        {changing, waiting}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                    )
                    changing.cancel()
                    if not done and not self._members:
                        break
                waiting.cancel()
                path.unlink(missing_ok=True)  # whoever comes now starts another
        finally:
            await self._end()
            os.close(alive)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One member: what it wants, what it is told, and then nothing until it ends."""
        while len(self._newcomers) >= MAX_NEWCOMERS:
            oldest = next(iter(self._newcomers))
            del self._newcomers[oldest]
            oldest.transport.abort()
        self._newcomers[writer] = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                line = await reader.readline()
            self._newcomers.pop(writer, None)
            if not line:
                return  # it only looked whether anybody is here
            self._members.add(writer)
            self._changed.set()
            answer = await self._answer(line)
            async with asyncio.timeout(HELLO_SECONDS):
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
            if "error" not in answer:
                self._joined.add(writer)
                self._most_members = max(self._most_members, len(self._joined))
                await reader.read(1)  # it has nothing more to say
        except (TimeoutError, OSError, ValueError) as error:
            message = "somebody came and did not say what for: %s"
            self._refusals.log(logger, logging.WARNING, message, type(error).__name__)
        finally:
            self._newcomers.pop(writer, None)
            self._members.discard(writer)
            self._joined.discard(writer)
            self._changed.set()
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        """What somebody is told: where the data workers are found, or what is wrong."""
        try:
            if len(self._members) > MAX_MEMBERS:
                raise ValueError(f"{MAX_MEMBERS} programs share already")
            asked = json.loads(line)
            if not isinstance(asked, dict) or type(asked.get("data_workers")) is not int:
                raise ValueError("a request has data_workers, a number, and options")
            return await self._join(asked["data_workers"], asked.get("options"))
        except (ValueError, RecursionError, OSError) as error:
            message = "somebody is refused: %s"
            self._refusals.log(logger, logging.WARNING, message, str(error)[:200])
            return {"error": str(error)}

    async def _join(self, count: int, asked: object) -> dict[str, Any]:
        """Have what a member wants running.

        Raises:
            ValueError: the group is another than it says, or it does not say which.
        """
        check_count(count)
        try:
            options = InputOptions.model_validate(asked)
        except ValidationError as error:
            raise ValueError(f"options: {error.errors(include_url=False)[0]['msg']}") from error
        if options.share is None:
            raise ValueError("options.share: members of a group say which")
        async with self._lock:
            if self._options is not None and options != self._options:
                raise ValueError(_differing(self._options, options))
            if self._plane is None:
                self._plane = await self._begin(count, options)
                self._options = options
            self._plane.grow(count)
            self._plane.dispatcher.expected_workers = self._plane.count
            return {"environ": self._plane.program_environ}

    async def _begin(self, count: int, options: InputOptions) -> LocalDataPlane:
        state = self._state()
        assert options.share is not None, "members of a group say which"
        window = options.share.window_bytes or read_memory().limit // SHARED_SHARE // max(1, count)
        share = options.share.model_copy(update={"window_bytes": max(1, window)})
        self._token = state.token
        environ = {**os.environ, names.JOB_TOKEN: state.token}
        told = options.model_copy(update={"share": share})
        plane = LocalDataPlane(count, told, environ, on_change=self._save)
        await plane.begin(state.port, state.data_workers, state.weights_dir)
        self._plane = plane
        self._save()
        return plane

    def _save(self) -> None:
        """Write down what the next keeper has to know, whole or not at all."""
        plane = self._plane
        assert plane is not None, "it has begun"
        state = {
            "token": self._token,
            "port": int(plane.address.rpartition(":")[2]),
            "data_workers": plane.running,
            "weights_dir": plane.weights_dir,
        }
        fresh = self._folder / f"{STATE}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(state, file)
        fresh.replace(self._folder / STATE)

    def _state(self) -> _State:
        """What the one before that was killed wrote down, or a new state."""
        try:
            found = json.loads((self._folder / STATE).read_text())
            workers = [
                ProcessId(int(pid), int(began)) for pid, began in found.get("data_workers", ())
            ]
            weights_dir = str(found.get("weights_dir", ""))
            return _State(str(found["token"]), int(found["port"]), workers, weights_dir)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return _State(secrets.token_hex(32))

    async def _end(self) -> None:
        plane = self._plane
        if plane is None:
            return
        # Before they end: of those that another keeper started nobody is told afterwards.
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = sum(cpu_seconds(one.pid) for one in plane.running)
        await plane.end()
        (self._folder / STATE).unlink(missing_ok=True)
        shared = plane.dispatcher.shared
        summary = {
            "made": shared.made,
            "taken": shared.taken,
            "evicted": shared.evicted,
            "members": self._most_members,
            "cpu_seconds": round(used.ru_utime + used.ru_stime + running, 3),
            "data_workers": plane.count,
        }
        (self._folder / SUMMARY).write_text(json.dumps(summary))
        logger.info("the group has ended: %s", json.dumps(summary))


def _differing(begun: InputOptions, asked: InputOptions) -> str:
    one, other = begun.model_dump(mode="json"), asked.model_dump(mode="json")
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            return (
                f"{name}: {other.get(name)}; the group was begun with {one.get(name)}: say the "
                "same, or name another group"
            )
    return "the group was begun with other options"


def options_of_group(
    group: str, order: ShareOrder, window_bytes: int, options: InputOptions
) -> InputOptions:
    """What a member of a group says of its input."""
    share = ShareOptions(group=group, order=order, window_bytes=window_bytes)
    return options.model_copy(update={"share": share})


def start(folder: Path) -> None:
    """Start a keeper as a process that does not end with this one."""
    import subprocess

    with (folder / LOG).open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "penstock.data.share_keeper", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path.cwd(),
        )


def main(folder: str) -> int:
    """Run a keeper; its exit code."""
    configure_log()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(Keeper(Path(folder)).run())
    except BlockingIOError:
        return 0  # another was faster
    return 0


def connect(folder: Path) -> socket.socket | None:
    """A connection to a group's keeper; None where there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    set_send_timeout(sock, HELLO_SECONDS)  # Python's own would refuse to wait for many before
    try:
        sock.connect(str(folder / SOCKET))
    except OSError:
        sock.close()
        return None
    return sock


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
