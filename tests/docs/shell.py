"""A shell into which a page's commands are typed, one after the other, as a person would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_DONE: Final = "penstock-command-done"
_OF_THE_CALLER: Final = ("KUBECONFIG", "VIRTUAL_ENV", "PENSTOCK_BRAIN_URL", "PENSTOCK_BRAIN_TOKEN")


def _silent(_: str) -> None:
    pass


class Shell:
    """One bash, so that variables, folders and background jobs last from command to command.

    It ends, and everything that was started in it, with the block or after `timeout_seconds`.
    """

    def __init__(
        self,
        folder: Path,
        timeout_seconds: float,
        environment: Mapping[str, str] | None = None,
        show: Callable[[str], object] = _silent,
    ) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
        self._timeout_seconds = timeout_seconds
        self._show = show
        self._process = subprocess.Popen(
            ["timeout", "--kill-after=10", str(timeout_seconds), "bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**kept, **(environment or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Its background jobs are in the process group that `timeout` made, and signals.
        self._process.terminate()
        try:
            self._process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def type(self, command: str) -> tuple[int, str]:
        """Type one command and wait for its end; its exit status, and what was printed."""
        source = self._process.stdin
        assert source is not None
        source.write(f"{command}\nprintf '\\n{_DONE} %d\\n' $?\n")
        source.flush()
        said = self.read_until(_DONE)
        *lines, done = said.splitlines(keepends=True)
        return int(done.split()[1]), "".join(lines)

    def ok(self, command: str) -> str:
        """Type a command that has to succeed; what it printed."""
        status, said = self.type(command)
        assert status == 0, f"$ {command}\n{said}"
        return said

    def read_until(self, text: str) -> str:
        """What is printed, to the line that holds a text: of a command in the background."""
        answers = self._process.stdout
        assert answers is not None
        said = []
        for line in answers:
            said.append(line)
            if text in line:
                return "".join(said)
            self._show(line)
        over = f"the shell ended, or its {self._timeout_seconds:g} s were over, before {text!r}:\n"
        raise AssertionError(over + "".join(said))
