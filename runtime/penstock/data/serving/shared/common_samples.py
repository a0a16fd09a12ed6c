"""The samples that a data worker keeps for jobs that have all batches in one order.

A sample is named by the epoch's seed and its index, so that batches of different sizes are of the
same samples; where a dataset gives all samples of a batch at once, they are named by the batch.
What is kept how long says `penstock.data.sharing.memo`. For the main thread of a data worker alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from penstock.data.errors import DataError
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.collate_guard import CollateGuard
from penstock.data.sharing.memo import Memo
from penstock.data.sharing.pipeline import SharedPipeline
from penstock.data.sizes import batch_bytes


class GoneError(DataError):
    """What was asked for has left the window, and is not to be made again."""


@dataclass
class CommonSamples:
    """Those of one dataset; see the module's docstring.

    Attributes:
        maker: whoever's came first makes the samples for all.
        window: bytes that are kept.
    """

    maker: SharedPipeline
    window: int
    pool: Memo = field(init=False)
    _samples: dict[Hashable, list[Any]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = Memo(self.window)

    @property
    def idle(self) -> bool:
        """Whether no loader is in an epoch."""
        return not self.pool.members

    def resize(self, window: int) -> None:
        """From now on so many bytes are kept."""
        self.pool.resize(window)
        self._trim()

    def rest(self, line: ConsumerConnection, stream: int) -> None:
        """A loader wants nothing more of an epoch."""
        self.pool.leave(_member(line, stream))
        self._trim()

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""
        for member in self.pool.members:
            if member.startswith(f"{line.name} "):
                self.pool.leave(member)
        self._trim()

    def make(self, request: Request, pipeline: SharedPipeline, guard: CollateGuard) -> Any:
        """The batch of some indices.

        Raises:
            GoneError: it is too late for it, and it is to be had at most once.
            Exception: whatever the user's code raises.
        """
        memo, seed = self.pool, request.seed
        name = _member(request.line, request.stream)
        memo.join(name)
        indices = list(request.indices)
        together = hasattr(pipeline.pipeline.dataset, "__getitems__")
        units = [indices] if together else [[index] for index in indices]
        names = {(seed, tuple(unit)): unit for unit in units}
        if pipeline.at_most_once and any(memo.is_gone(one) for one in names):
            raise GoneError("it has left the window")
        self._make(seed, {one: unit for one, unit in names.items() if not memo.has(one)})
        samples = [sample for unit in units for sample in self._samples[seed, tuple(unit)]]
        for one in names:
            memo.note_had(name, one)
        self._trim()
        return guard.collate(pipeline.pipeline, seed, indices, samples)

    def _make(self, seed: int, lacking: dict[Hashable, list[Any]]) -> None:
        wanted = [index for unit in lacking.values() for index in unit]
        if not wanted:
            return
        made = iter(self.maker.pipeline.samples(seed, wanted))
        for one, unit in lacking.items():
            self._samples[one] = [next(made) for _ in unit]
            self.pool.put(one, max(1, batch_bytes(self._samples[one])))

    def _trim(self) -> None:
        for name in self.pool.take_dropped():
            self._samples.pop(name, None)


def _member(line: ConsumerConnection, stream: int) -> str:
    """A loader in one of its epochs."""
    return f"{line.name} {stream}"
