"""The errors of the simulators: one tree, each saying what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class SimulationError(Exception):
    """Root of the errors of `penstock.sim`; one that a process raises reaches another as it is."""

    def __reduce__(self) -> tuple[Any, ...]:
        """How to make it again, whatever its constructor takes."""
        return _again, (type(self), self.args), self.__dict__


class MissingTraceError(SimulationError, FileNotFoundError):
    """A trace file is not where it was looked for."""

    def __init__(self, path: Path, source: str) -> None:
        super().__init__(
            f"{path} is not there: fetch {source} and put the file into that folder, or name "
            "another folder with --traces"
        )
        self.path = path


class UnnamedTracesError(SimulationError, ValueError):
    """Traces are to be read, and no folder was named; ``without``: what needs none."""

    def __init__(self, without: str) -> None:
        super().__init__(
            f"name the folder with the trace files with --traces; {without} needs none"
        )


class BrokenTraceError(SimulationError, ValueError):
    """A trace file holds something that the reader cannot use."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}, line {line}: {problem}")
        self.path = path
        self.line = line


class UnknownNameError(SimulationError, LookupError):
    """A workload or a policy that does not exist was asked for."""

    def __init__(self, kind: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no {kind} is called {name!r}; there are {', '.join(known)}")


def _again(kind: type[SimulationError], said: tuple[object, ...]) -> SimulationError:
    error = kind.__new__(kind)
    error.args = said  # what OSError keeps from its constructor alone
    return error
