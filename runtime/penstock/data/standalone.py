"""Data workers without a cluster: ``penstock run --data-workers 2 -- python train.py``.

A dispatcher on loopback and a number of data worker processes beside the program. A data worker
that dies is started again; all of them die with the command that started them, however it dies
(but for a share group's, see `penstock.data.outliving`).
The program itself is run by a ``penstock run`` of its own, so that what looks after the program,
and ends whatever it leaves behind, does not meet what looks after the data workers. Ctrl-C is for
the program to answer: the others are in sessions of their own, and stay as long as it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from penstock.base.exit_codes import shell_code
from penstock.base.listener import address_of, create_listener
from penstock.base.logs import stderr_handler
from penstock.base.parent_death import die_with_parent
from penstock.crds import environment as names
from penstock.data.allocator import ALLOCATOR
from penstock.data.call_guard import guard_calls
from penstock.data.dispatcher import Dispatcher, routes
from penstock.data.hooked import NO_DATA_WORKERS
from penstock.data.interception import environment
from penstock.data.job_input import JobInput
from penstock.data.outliving import Adopted, Kept, ProcessId, adopted
from penstock.data.protocol import MAX_BYTES, InputOptions
from penstock.data.share_places import is_private

if TYPE_CHECKING:
    from penstock.base.http.server import HttpServer
    from penstock.data.applying import Choice

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
LEAVE_SECONDS: Final = 6.0
RESTART_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
MAX_DATA_WORKERS: Final = 256
WEIGHTS_PREFIX: Final = "penstock-weights-"
"""With which the name of a folder of weights begins that is removed."""


def check_count(count: int, option: str = "--data-workers") -> None:
    """Raise ValueError for a number of data workers that cannot be."""
    if not 0 <= count <= MAX_DATA_WORKERS:
        raise ValueError(f"{option}: {count}; must be from 0 to {MAX_DATA_WORKERS}")


class LocalDataPlane:
    """Dispatcher and data workers for one program, while it is entered."""

    def __init__(
        self,
        count: int,
        options: InputOptions | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        stage_workers: int = 0,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """``stage_workers``: beside these, to run batched stages on what they make.

        ``on_change``: told when other data workers run than before; they outlive this process.

        Raises:
            ValueError: a number of data workers that cannot be.
        """
        check_count(count)
        check_count(stage_workers, "--stage-workers")
        self._count, self._stage_workers = count, stage_workers
        self._on_change = on_change
        self.input = JobInput()
        self._token = environ.get(names.JOB_TOKEN) or secrets.token_hex(32)
        self._environ = dict(environ)
        self._weights_dir = ""  # of its own, where the environment names none
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: dict[Kept, ProcessId | None] = {}
        told = options or InputOptions()
        self.dispatcher = Dispatcher(secrets.token_hex(4), lambda: told)
        self.address = ""

    @property
    def count(self) -> int:
        """Data workers that it keeps running."""
        return self._count

    @property
    def program_environ(self) -> dict[str, str]:
        """What a program finds the dispatcher by."""
        found = {names.DATA_ADDRESS: self.address, names.JOB_TOKEN: self._token}
        if self._weights_dir:
            found[names.WEIGHTS_DIR] = self._weights_dir
        return found

    def environ(self) -> dict[str, str]:
        """The program's environment."""
        alone = "" if self._count or self._stage_workers else "1"
        told = {**self.program_environ, NO_DATA_WORKERS: alone}
        return environment({**self._environ, **told})

    @property
    def running(self) -> list[ProcessId]:
        """The data workers that run now."""
        return [one for one in self._processes.values() if one is not None]

    def grow(self, count: int) -> None:
        """Keep at least so many data workers running."""
        while self._count < min(count, MAX_DATA_WORKERS):
            self._count += 1
            self._tasks.append(asyncio.create_task(self._keep_one()))

    @property
    def weights_dir(self) -> str:
        """The folder of weights that it removes at its end; empty: the environment names one."""
        return self._weights_dir

    async def begin(
        self, port: int = 0, running: Sequence[ProcessId] = (), weights_dir: str = ""
    ) -> None:
        """Start; ``port``: to listen on, if it is free.

        ``running``: data workers that report to that port, to be kept instead of others.
        ``weights_dir``: of one before that was killed, to be gone on with if it is there.
        """
        try:
            listening = create_listener("127.0.0.1", port)
        except OSError:
            listening, running = create_listener("127.0.0.1", 0), ()  # nobody finds it there
        self.address = address_of(listening)
        if names.WEIGHTS_DIR not in self._environ:
            left = Path(weights_dir)
            kept = left.name.startswith(WEIGHTS_PREFIX) and is_private(left)
            self._weights_dir = weights_dir if kept else tempfile.mkdtemp(prefix=WEIGHTS_PREFIX)
        # To load a server takes as long as the program takes to load its own: they do it at once.
        making = asyncio.create_task(asyncio.to_thread(_server, self.dispatcher, self._token))
        self._making, self._serving = making, asyncio.create_task(_serve(making, listening))
        found = adopted(running)
        self._count = max(self._count, len(found))
        new = [0] * (self._count - len(found)) + [1] * self._stage_workers
        self._tasks = [asyncio.create_task(self._keep_one(process=one)) for one in found]
        self._tasks += [asyncio.create_task(self._keep_one(stage)) for stage in new]

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()

    async def end(self) -> None:
        """End everybody."""
        await self.end_data_workers()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        (await self._making).should_exit = True
        await self._serving
        if self._weights_dir:
            shutil.rmtree(self._weights_dir, ignore_errors=True)

    async def end_data_workers(self) -> None:
        """The program goes on without them; what they had not made goes to itself."""
        self._stopping = True
        for process in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    async def _keep_one(self, stage: int = 0, process: Kept | None = None) -> None:
        """Keep one data worker of a stage running; ``process``: that does already."""
        failures = 0
        while not self._stopping:
            process = process or await self._start_one(stage)
            self._processes[process] = ProcessId.of(process.pid)
            self._note_change()
            code = await process.wait()
            del self._processes[process]
            self._note_change()
            if isinstance(process, Adopted):
                process.close()
            process = None
            if self._stopping:
                return
            pause = RESTART_SECONDS[min(failures, len(RESTART_SECONDS) - 1)]
            how = "" if code is None else f" with code {code}"
            logger.warning("a data worker ended%s: another in %.1f s", how, pause)
            failures += 1
            await asyncio.sleep(pause)

    async def _start_one(self, stage: int) -> Kept:
        own = {names.DATA_STAGE: str(stage)}
        environ = {**ALLOCATOR, **self._environ, **self.program_environ, **own}
        command = [sys.executable, "-m", "penstock.data.worker_process"]
        outlives = self._on_change is not None
        return await asyncio.create_subprocess_exec(
            *(*command, str(os.getpid())) if outlives else command,
            env=environ,
            preexec_fn=None if outlives else die_with_parent,
            start_new_session=True,
        )

    def _note_change(self) -> None:
        if self._on_change is not None and not self._stopping:
            self._on_change()


def run(
    count: int,
    options: InputOptions,
    arguments: Sequence[str],
    choice: Choice | None = None,
    stage_workers: int = 0,
) -> int:
    """``penstock run ARGUMENTS`` with data workers beside it; its exit code.

    ``stage_workers``: such as run batched stages.
    ``choice``: why there are so many, and what they promise; None: somebody wanted them.

    Raises:
        ValueError: a number of data workers that cannot be.
    """
    configure_log()
    plane = LocalDataPlane(count, options, stage_workers=stage_workers)
    check = partial(_check, plane, choice) if choice is not None else None
    return asyncio.run(run_program(plane, arguments, check))


def configure_log() -> None:
    """What there is to say of the data workers goes to stderr, as what the program says."""
    root = logging.getLogger("penstock")
    if not root.handlers:
        root.addHandler(stderr_handler("text"))
        root.setLevel(logging.INFO)


class Surroundings(Protocol):
    """What a program runs in, while it is entered."""

    def environ(self) -> dict[str, str]:
        """The program's environment."""

    async def __aenter__(self) -> Any:
        """Have it there."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Have it gone."""


async def run_program(
    around: Surroundings,
    arguments: Sequence[str],
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """``penstock run ARGUMENTS`` in its surroundings; its exit code.

    ``beside``: what is done while it runs, and ends with it.
    """
    code = "import sys; from penstock.cli.main import main; sys.exit(main())"
    async with around:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, "run", *arguments),
            env=around.environ(),
            preexec_fn=die_with_parent,
            start_new_session=True,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _pass_on, process, number)
        task = asyncio.create_task(beside()) if beside is not None else None
        code_of_program = await process.wait()
        if task is not None:
            task.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return shell_code(code_of_program)


async def _check(plane: LocalDataPlane, choice: Choice) -> None:
    """Compare what was promised with what the program does once its data workers are at work."""
    from penstock.data.applying import verdict

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = time.monotonic()
        workers = len(plane.dispatcher.workers(now))
        plane.input.note(plane.dispatcher.consumers(now), workers, now)
        found = plane.input.profile(1.0) if workers >= choice.data_workers else None
        if found is None:
            continue
        kept, said = verdict(choice, found.rate.value * choice.batch_size)
        logger.info("%s", said)
        if not kept:
            await plane.end_data_workers()
        return


def _pass_on(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def _serve(making: asyncio.Task[HttpServer], listening: socket.socket) -> None:
    await (await making).serve(sockets=[listening])


def _server(dispatcher: Dispatcher, token: str) -> HttpServer:
    from starlette.applications import Starlette

    from penstock.base.http.server import make_server

    app = Starlette(routes=routes(dispatcher, guard_calls(token, MAX_BYTES)))
    return make_server(app, keep_alive_seconds=60, stop_seconds=1, log_level="warning")
