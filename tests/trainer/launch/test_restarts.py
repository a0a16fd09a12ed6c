"""A program that fails is started again, so often and no oftener, and never one that is to end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from penstock.trainer.launch.program import NOT_FOUND, SingleProgram
from penstock.trainer.launch.restarts import RestartedProgram


class Scripted:
    """A program that ends with what it is told to."""

    ranks = 0
    pids = (7,)

    def __init__(self, code: int) -> None:
        self._code = code
        self.told: list[signal.Signals] = []

    async def begun(self) -> None:
        """At once."""

    async def run(self) -> int:
        await asyncio.sleep(0)
        return self._code

    def pass_on(self, number: signal.Signals) -> None:
        self.told.append(number)

    def restart(self) -> bool:
        return False


def ends(codes: list[int], most: int, told: int | None = None) -> tuple[int, list[int], int]:
    """The code it ends with, those that were heard of, and how often it was started.

    ``told``: at this end somebody wants the program to end.
    """
    made: list[Scripted] = []
    heard: list[int] = []

    def make() -> Scripted:
        made.append(Scripted(codes[len(made)]))
        return made[-1]

    async def main() -> int:
        loop = asyncio.get_running_loop()

        def ended(code: int) -> None:
            heard.append(code)
            if len(heard) == told:
                loop.call_soon_threadsafe(program.pass_on, signal.SIGTERM)

        program = RestartedProgram(make, most, ended, pause_seconds=0.2 if told else 0.0)
        assert program.pids == (7,)
        return await program.run()

    return asyncio.run(main()), heard, len(made)


@pytest.mark.parametrize(
    ("codes", "most", "expected"),
    [
        ([0], 3, (0, [], 1)),
        ([137, 0], 3, (0, [137], 2)),
        ([1, 137, 2], 2, (2, [1, 137, 2], 3)),
        ([137], 0, (137, [137], 1)),
        ([NOT_FOUND], 3, (NOT_FOUND, [], 1)),
    ],
)
def test_it_is_started_so_often(
    codes: list[int], most: int, expected: tuple[int, list[int], int]
) -> None:
    assert ends(codes, most) == expected


def test_what_somebody_wants_to_end_is_not_started_again() -> None:
    assert ends([143, 0], 3, told=1) == (143, [143], 1)
    assert ends([1, 143, 0], 3, told=2) == (143, [1, 143], 2)


def test_one_that_hangs_is_killed_and_started_again_for_nothing() -> None:
    made: list[Scripted] = []
    killed = asyncio.Event()

    class Hangs(Scripted):
        async def run(self) -> int:
            await killed.wait()
            return 137

        def pass_on(self, number: signal.Signals) -> None:
            super().pass_on(number)
            killed.set()

    def make() -> Scripted:
        made.append(Scripted(0) if made else Hangs(137))
        return made[-1]

    async def main() -> int:
        program = RestartedProgram(make, 0, lambda _: None, pause_seconds=0.0)
        running = asyncio.create_task(program.run())
        await asyncio.sleep(0)
        assert program.restart()
        return await running

    assert asyncio.run(main()) == 0
    assert (made[0].told, len(made)) == ([signal.SIGKILL], 2)


def test_a_crash_is_in_the_log_before_what_it_left_is_saved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said: list[str] = []
    crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]

    def save(_: int) -> None:
        said.append(caplog.text)

    async def main() -> int:
        return await RestartedProgram(lambda: SingleProgram(crash, os.environ), 0, save).run()

    assert asyncio.run(main()) == 128 + signal.SIGSEGV
    assert "ended by SIGSEGV: exit code 139" in said[0]


def test_one_that_is_to_end_is_not_started_again_for_hanging() -> None:
    program = RestartedProgram(lambda: Scripted(0), 3, lambda _: None)
    program.pass_on(signal.SIGTERM)
    assert not program.restart()
