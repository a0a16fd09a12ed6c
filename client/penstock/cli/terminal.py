"""What the process was started with: standard streams, their encoding, the size of the terminal.

A shell may close a stream, speak Latin-1, or say that it has no columns at all. None of that may
end a command with a traceback: what an encoding lacks is printed as ``?`` (programs are given
escapes instead, `penstock.cli.output.written`), and what cannot be written is said once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

TERMINATED: Final = 128 + signal.SIGTERM


def prepare() -> None:
    """Make the streams usable as they are. Once, before anything is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell: penstock list >&-
            # Open as long as the process lives.
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nowhere)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if not _is_size(os.environ.get("COLUMNS", "1")):
        del os.environ["COLUMNS"]


def _is_size(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def forget_output() -> None:
    """Send what is still in the buffer of standard output nowhere: it could not be written."""
    with suppress(OSError), Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@contextmanager
def termination_ends_it() -> Iterator[None]:
    """Let SIGTERM unwind the command, so that it ends what it started (a forwarded port)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
