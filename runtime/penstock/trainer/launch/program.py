"""What an agent runs, and the simplest of it: one command, once, as it is."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from penstock.base.exit_codes import shell_code
from penstock.base.parent_death import die_with_parent
from penstock.trainer.child_processes import kill_group

logger = logging.getLogger(__name__)

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126


class Program(Protocol):
    """Some processes with one end."""

    @property
    def ranks(self) -> int:
        """Processes that are started as ranks of one world; 0: the program is started as it is."""

    @property
    def pids(self) -> Collection[int]:
        """Of the processes that were started, and whose end has not been seen."""

    async def begun(self) -> None:
        """Wait until there is something to report of it."""

    async def run(self) -> int:
        """Run to the end; the exit code, as a shell has it."""

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every process, and start none after it."""

    def restart(self) -> bool:
        """Kill the processes and start them again; False: that cannot be done here."""


class SingleProgram:
    """One command, in a session of its own."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = command
        self._environ = environ
        self._pid = 0  # while it runs
        self._early: list[signal.Signals] = []  # before it ran
        self._sent: set[int] = set()
        self._begun = asyncio.Event()

    @property
    def ranks(self) -> int:
        """See `Program.ranks`."""
        return 0

    @property
    def pids(self) -> Collection[int]:
        """See `Program.pids`."""
        return (self._pid,) if self._pid else ()

    async def begun(self) -> None:
        """See `Program.begun`."""
        await self._begun.wait()

    async def run(self) -> int:
        """See `Program.run`."""
        try:
            process = await start(self._command, self._environ)
        except OSError as error:
            return say_unstartable(self._command, error)
        self._pid = process.pid
        self._begun.set()
        for number in self._early:
            kill_group(process.pid, number)
        code = await process.wait()
        self._pid = 0
        kill_group(process.pid, signal.SIGKILL)
        if code < 0 and -code not in self._sent:
            # It has no last words, and what its agent does next may take a minute.
            logger.error(
                "the program was ended by %s: exit code %d", _name(-code), shell_code(code)
            )
        return shell_code(code)

    def pass_on(self, number: signal.Signals) -> None:
        """See `Program.pass_on`."""
        self._sent.add(number)
        if self._pid:
            kill_group(self._pid, number)
        else:
            self._early.append(number)

    def restart(self) -> bool:
        """See `Program.restart`: it runs once."""
        return False


async def start(command: Sequence[str], environ: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a command in a session of its own, which dies with this process. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *command, env=environ, start_new_session=True, preexec_fn=die_with_parent
    )


def _name(number: int) -> str:
    """Of a signal, as ``kill -l`` has it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def say_unstartable(command: Sequence[str], error: OSError) -> int:
    """Say why a command cannot be started; the exit code for it."""
    if isinstance(error, FileNotFoundError):
        logger.error(
            "%s: no such program: look whether the image has it; a Python script is named as "
            "python train.py, or behind --nproc-per-node as train.py, without a launcher",
            command[0],
        )
        return NOT_FOUND
    # No right to run it, a script without #!, a broken binary.
    logger.error("%s: cannot be run: %s", command[0], error.strerror)
    return NOT_EXECUTABLE
