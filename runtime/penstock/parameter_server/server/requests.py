"""What a request brings in its body, and what is sent as an answer: frames of `wire`.

Bodies are looked at where they lie, not copied. What does not fit its announcement is a
QuestionError, or the ValueError or TypeError of what was made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.parameter_server.arrays import Floats, Gradients, Rows
from penstock.parameter_server.server.storage.space import BadRequestError
from penstock.parameter_server.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Response:
    """What to send; ``size``: bytes of the body."""

    kind: int
    header: list[Any]
    body: Sequence[Any] = ()
    size: int = 0


class RequestReader:
    """The body of a request, which is taken from it piece by piece."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def rows(self, count: int) -> Rows:
        """So many row numbers."""
        if count < 0:
            raise BadRequestError(f"{count} rows")
        at = self._passed(8 * count)
        return np.frombuffer(self._body, np.int64, count, at) if count else np.empty(0, np.int64)

    def floats(self, count: int) -> Floats:
        """So many numbers."""
        at = self._passed(4 * count)
        if not count:
            return np.empty(0, np.float32)
        return np.frombuffer(self._body, np.float32, count, at)

    def gradients(self, spec: ModelSpec, pieces: Sequence[tuple[int, int]]) -> list[Gradients]:
        """The gradients of (space, rows) after (space, rows)."""
        found = []
        for space, count in pieces:
            if not 0 <= space < len(spec.spaces):
                raise BadRequestError(f"space {space}; the model has {len(spec.spaces)}")
            dim = spec.spaces[space].dim
            rows = self.rows(count)
            found.append(Gradients(space, rows, self.floats(count * dim).reshape(count, dim)))
        return found

    def end(self) -> int:
        """All has been taken: how many bytes that was."""
        if self._at != len(self._body):
            raise BadRequestError(
                f"a body of {len(self._body)} bytes where {self._at} were announced"
            )
        return self._at

    def _passed(self, size: int) -> int:
        at = self._at
        self._at += size
        return at
