"""A program that a command runs as its child, with the same terminal and exit code as alone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.base.exit_codes import shell_code

STOP_SECONDS: Final = 20.0


@contextmanager
def signals_to(program: subprocess.Popen[Any]) -> Iterator[None]:
    """SIGTERM is the program's; Ctrl-C reaches it by itself, and its end is ours."""

    def pass_on(number: int, frame: object) -> None:
        program.send_signal(number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_program(program: subprocess.Popen[Any]) -> None:
    """End it, by force where it does not end by itself."""
    program.terminate()
    try:
        program.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()


def end_of(program: subprocess.Popen[Any], *, stopped: bool) -> int:
    """Wait for its end; its exit code as a shell has it, and 0 where it was ``stopped``."""
    code = program.wait()
    if stopped and code in (-signal.SIGTERM, -signal.SIGKILL):
        return 0
    return shell_code(code)
