"""Keeps the processes of a control plane running on this machine.

Guarantees: a component starts only after those it needs have announced their addresses; one that
dies is started again with back-off, at the address it had; when the supervisor ends, however it
ends, so do its components (they are told to die with their parent); stopping takes a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from penstock.local.control_plane.components import Component
from penstock.local.control_plane.home import ComponentState, ControlPlaneState, Home

START_TIMEOUT_SECONDS: Final = 60.0
STOP_TIMEOUT_SECONDS: Final = 15.0
FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 30.0
STABLE_SECONDS: Final = 60.0
"""A component that ran this long starts again with the shortest back-off."""

LAST_OUTPUT_SECONDS: Final = 1.0
"""What is still in the pipe of a dead component gets this long. Its end is not waited for: a
process that the component left behind may hold the other side open for ever."""

LOG_BYTES: Final = 16 << 20
"""A log beyond this size is put aside as ``NAME.log.1`` when its component starts again."""

_ADDRESS: Final = re.compile(r"https?://[\w.\-\[\]:]+")
_PR_SET_PDEATHSIG: Final = 1
_T = TypeVar("_T")


class StartError(Exception):
    """A component did not start; the message names it and holds the last lines of its log."""


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends (Linux; elsewhere nothing)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def last_lines(log: Path, count: int = 12) -> str:
    """The end of a log, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-count:])


class _Runner:
    """One component: its process, the address it announced, how often it was started again."""

    def __init__(self, component: Component, logs: Path) -> None:
        self.component = component
        self.log = logs / f"{component.name}.log"
        self.address = ""
        self.restarts = 0
        self.process: asyncio.subprocess.Process | None = None
        self._output: asyncio.StreamReader | None = None
        self._pipe: asyncio.ReadTransport | None = None

    async def start(self, addresses: dict[str, str]) -> None:
        """Start the process and wait for its address; raises StartError."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        command = self.component.command(addresses)
        # A pipe of our own: with asyncio's, Process.wait() returns only when that has ended too.
        ours, theirs = os.pipe()
        try:
            with self.log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=log,
                    env={**os.environ, **self.component.environment, "PYTHONUNBUFFERED": "1"},
                    preexec_fn=die_with_parent,
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        output = self._output = asyncio.StreamReader()
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(ours, "rb", 0)
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                self.address = await self._announced()
        except TimeoutError:
            await self.stop()
            what = f"announced no address within {START_TIMEOUT_SECONDS:.0f} s"
            raise StartError(self._failure(what)) from None
        addresses[self.component.name] = self.address

    async def _announced(self) -> str:
        assert self.process is not None
        reading = asyncio.create_task(self._read_address())
        try:
            if address := await self._while_it_runs(reading):
                return address
            code = await self.process.wait()
        finally:
            reading.cancel()
        self._close_pipe()
        raise StartError(self._failure(f"ended with exit code {code}"))

    async def _read_address(self) -> str:
        """The first address in the output; empty when that ends without one."""
        assert self._output is not None
        while line := await self._output.readline():
            if found := _ADDRESS.search(line.decode(errors="replace")):
                return found.group()
        return ""

    async def _while_it_runs(self, reading: asyncio.Task[_T]) -> _T | None:
        """The outcome of a task on the output; None if that outlasts the process."""
        assert self.process is not None
        ending = asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({reading}, timeout=LAST_OUTPUT_SECONDS)
            return reading.result() if reading.done() else None
        finally:
            ending.cancel()

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _failure(self, what: str) -> str:
        return f"{self.component.name} did not start: it {what}\n{last_lines(self.log)}"

    async def drain_output(self) -> None:
        """Keep the rest of standard output in the log, until the process ends."""
        assert self.process is not None
        copying = asyncio.create_task(self._copy_output())
        try:
            await self._while_it_runs(copying)
            await self.process.wait()
        finally:
            copying.cancel()
        self._close_pipe()

    async def _copy_output(self) -> None:
        assert self._output is not None
        while chunk := await self._output.read(65536):
            # A full disk loses lines of a log, but must not stop the process that writes them.
            with contextlib.suppress(OSError), self.log.open("ab") as log:
                log.write(chunk)

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after the time-out."""
        try:
            await self._end_process()
        finally:
            self._close_pipe()

    async def _end_process(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


@contextlib.asynccontextmanager
async def supervised(
    home: Home,
    components: Sequence[Component],
    started: Callable[[str], None] = lambda name: None,
    prepare: Callable[[str], Awaitable[None]] | None = None,
    api_server: str = "",
) -> AsyncIterator[dict[str, str]]:
    """Run the components; yields their addresses by name and stops them in reverse order.

    ``started`` is called with the name of each component that has announced its address, after
    ``prepare`` (which may, for instance, wait for something that the next component needs).
    ``api_server`` is that of somebody else's cluster, for the state file.

    Raises:
        StartError: One of them does not start; everything is stopped again.
    """
    home.create()
    home.write_brain_token()
    addresses: dict[str, str] = {}
    runners: list[_Runner] = []
    watchers: list[asyncio.Task[None]] = []

    def publish(ready: bool, error: str | None = None) -> None:
        states = {
            runner.component.name: ComponentState(
                pid=runner.process.pid if runner.process else 0,
                url=runner.address,
                restarts=runner.restarts,
            )
            for runner in runners
        }
        home.write_state(ControlPlaneState(os.getpid(), ready, states, error, api_server))

    try:
        publish(ready=False)
        for component in components:
            runner = _Runner(component, home.logs)
            runners.append(runner)
            await runner.start(addresses)
            if prepare is not None:
                await prepare(component.name)
            publish(ready=False)
            started(component.name)
        publish(ready=True)
        watchers = [
            asyncio.create_task(_keep_running(runner, addresses, lambda: publish(ready=True)))
            for runner in runners
        ]
        yield addresses
    except StartError as error:
        publish(ready=False, error=str(error))
        raise
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        for runner in reversed(runners):
            await runner.stop()


async def _keep_running(
    runner: _Runner, addresses: dict[str, str], changed: Callable[[], None]
) -> None:
    backoff = FIRST_BACKOFF_SECONDS
    while True:
        began = time.monotonic()
        await runner.drain_output()
        if time.monotonic() - began > STABLE_SECONDS:
            backoff = FIRST_BACKOFF_SECONDS
        await asyncio.sleep(backoff)
        backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)
        runner.restarts += 1
        runner.component = _at_address(runner.component, runner.address)
        try:
            await runner.start(addresses)
            changed()
        except (StartError, OSError) as error:
            # The command's own messages.
            print(f"{runner.component.name}: {error}", file=sys.stderr)  # noqa: T201


def _at_address(component: Component, address: str) -> Component:
    """The component with the port that it was given, so that its clients find it again."""
    port = address.rpartition(":")[2].rstrip("/")
    argv = tuple(
        f"{option}={port}" if option in {"--port", "--metrics-port"} and value == "0" else part
        for part in component.argv
        for option, _, value in [part.partition("=")]
    )
    return Component(component.name, argv, component.after, component.environment)
