"""The samples that a data worker keeps for jobs that have all batches in one order.

A sample is named by the epoch's seed and its index, so that batches of different sizes are of the
same samples; where a dataset gives all samples of a batch at once, they are named by the batch.
What is kept how long says `penstock.data.sharing.memo`. For the main thread of a data worker alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from penstock.data.errors import DataError
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.collate_guard import CollateGuard
from penstock.data.serving.shared.memo_window import MemoWindow
from penstock.data.sharing.pipeline import SharedPipeline


class GoneError(DataError):
    """What was asked for has left the window, and is not to be made again."""


@dataclass
class CommonSamples(MemoWindow):
    """Those of one dataset; see the module's docstring.

    Attributes:
        maker: whoever's came first makes the samples for all.
    """

    maker: SharedPipeline

    def rest(self, line: ConsumerConnection, stream: int) -> None:
        """A loader wants nothing more of an epoch."""
        self.pool.leave(_member(line, stream))
        self.trim()

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""
        for member in self.pool.members:
            if member.startswith(f"{line.name} "):
                self.pool.leave(member)
        self.trim()

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
        samples = [sample for unit in units for sample in self.kept[seed, tuple(unit)]]
        for one in names:
            memo.note_had(name, one)
        self.trim()
        return guard.collate(pipeline.pipeline, seed, indices, samples)

    def _make(self, seed: int, lacking: dict[Hashable, list[Any]]) -> None:
        wanted = [index for unit in lacking.values() for index in unit]
        if not wanted:
            return
        made = iter(self.maker.pipeline.samples(seed, wanted))
        for one, unit in lacking.items():
            self.put(one, [next(made) for _ in unit])


def _member(line: ConsumerConnection, stream: int) -> str:
    """A loader in one of its epochs."""
    return f"{line.name} {stream}"
