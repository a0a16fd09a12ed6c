"""A program that its agent starts again when it fails, so that the pod need not be replaced.

The agent keeps what the program left in its memory (`penstock.trainer.snapshot.keeper`), so a
process that was killed goes on where it was; a new pod has to be scheduled, pull its image and read
a checkpoint first. As torchrun's ``--max-restarts`` it is bounded, and off unless asked for.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Collection
from typing import Final

from penstock.trainer.launch.program import NOT_EXECUTABLE, NOT_FOUND, Program

logger = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 1.0
_FINAL: Final = (0, NOT_EXECUTABLE, NOT_FOUND)
"""Exit codes that another start would not change."""


class RestartedProgram:
    """A `penstock.trainer.launch.program.Program` that is another one, several times if need be.

    It is not started again once a signal was passed on to it: somebody wants it to end. A start
    that was asked for (`restart`) takes none of those that it has.
    """

    def __init__(
        self,
        make: Callable[[], Program],
        most: int,
        ended: Callable[[int], None],
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Made, not run.

        Args:
            make: one start of the program.
            most: how often it is started again.
            ended: called with the exit code of each that failed, before anything is started again.
            pause_seconds: between an end and the next start.
        """
        self._make = make
        self._left = most
        self._ended = ended
        self._pause_seconds = pause_seconds
        self._program = make()
        self._told = asyncio.Event()

    @property
    def ranks(self) -> int:
        """See `Program.ranks`."""
        return self._program.ranks

    @property
    def pids(self) -> Collection[int]:
        """See `Program.pids`."""
        return self._program.pids

    async def begun(self) -> None:
        """See `Program.begun`."""
        await self._program.begun()

    async def run(self) -> int:
        """See `Program.run`."""
        while True:
            code = await self._program.run()
            if code in _FINAL:
                return code
            await asyncio.to_thread(self._ended, code)
            if self._told.is_set() or not self._left:
                return code
            self._left -= 1
            try:
                async with asyncio.timeout(self._pause_seconds):
                    await self._told.wait()
            except TimeoutError:
                pass
            else:
                return code
            logger.warning(
                "the program ended with exit code %d: it is started again, and %d times more",
                code,
                self._left,
            )
            self._program = self._make()

    def pass_on(self, number: signal.Signals) -> None:
        """See `Program.pass_on`."""
        self._told.set()
        self._program.pass_on(number)

    def restart(self) -> bool:
        """See `Program.restart`."""
        if self._told.is_set() or not self._program.pids:
            return False
        self._left += 1
        self._program.pass_on(signal.SIGKILL)
        return True
