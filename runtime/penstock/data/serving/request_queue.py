"""What training processes have asked a data worker for: each in turn, and each one's in its order.

A job that reads ahead has many batches asked for. Where several jobs share, somebody who has
nothing left would wait for all that others have asked for ahead; in turn, he waits for one batch of
each. Guarded by the lock of whoever has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class OfLine(Protocol):
    """A request; ``line``: of whom."""

    @property
    def line(self) -> Hashable: ...


Asked = TypeVar("Asked", bound=OfLine)


class RequestQueue(Generic[Asked]):
    """See the module's docstring."""

    def __init__(self) -> None:
        self._of: dict[Hashable, deque[Asked]] = {}  # the first is whose turn it is; none is empty

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def count(self, line: Hashable) -> int:
        """Requests of one training process."""
        return len(self._of.get(line, ()))

    def put(self, requests: Iterable[Asked]) -> None:
        """They come after all others of the same training process."""
        for request in requests:
            self._of.setdefault(request.line, deque()).append(request)

    def take(self, ready: Callable[[Asked], bool] = lambda request: True) -> Asked | None:
        """The next request; None: there is none.

        ``ready``: whether one can be answered now; who waits for it keeps his turn.
        """
        line = next((line for line, requests in self._of.items() if ready(requests[0])), None)
        if line is None:
            return None
        requests = self._of.pop(line)
        taken = requests.popleft()
        if requests:
            self._of[line] = requests
        return taken

    def remove(
        self, line: Hashable, unwanted: Callable[[Asked], bool] = lambda request: True
    ) -> list[Asked]:
        """Take out what nobody wants any more of a training process: all, or some of it."""
        requests = self._of.get(line, deque())
        removed = [request for request in requests if unwanted(request)]
        kept = deque(request for request in requests if not unwanted(request))
        if kept:
            self._of[line] = kept  # where it was
        else:
            self._of.pop(line, None)
        return removed
