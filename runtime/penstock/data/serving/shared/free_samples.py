"""The samples that a data worker holds for jobs that share them in free order.

`penstock.data.sharing.pool` decides which tiles a loader gets and which are made; here are their
samples, as objects in this process's memory. A batch is collated for whoever asks, by his own
``collate_fn``, straight into the memory that his program reads: so batches of different sizes, or
of different collate functions, are of the same samples, and each further job costs one copy.

For the main thread of a data worker alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.data.dataset_watch import DatasetWatch, KeepsStateError
from penstock.data.errors import DataError, FrameError
from penstock.data.ledger import derive_seed
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.collate_guard import CollateGuard
from penstock.data.sharing.pipeline import SharedPipeline, lacks_of
from penstock.data.sharing.pool import Pick, Pool
from penstock.data.sizes import batch_bytes

MAX_TOLD: Final = 4
"""Batches that a loader is told of as lying here; more make no difference to whom it asks."""


class NothingLeftError(DataError):
    """The loader lacks fewer tiles of those that it is to get here than it asks for."""


class BatchOfTilesError(DataError):
    """A batch of shared samples could not be made; ``tiles`` are those that it was to have."""

    def __init__(self, error: Exception, tiles: list[int]) -> None:
        super().__init__(str(error))
        self.error = error
        self.tiles = tiles


@dataclass(frozen=True, slots=True)
class _Made:
    """The samples of a tile, and their indices, which it takes as long to find as to copy them."""

    indices: list[int]
    samples: list[Any]


@dataclass
class _Member:
    """A loader of a training process; ``divides``: it has others to ask beside this process."""

    line: ConsumerConnection
    name: str
    stream: int
    batch_tiles: int = 1
    told: int = 0
    divides: bool = True


@dataclass
class FreeSamples:
    """Those of one dataset; see the module's docstring.

    Attributes:
        maker: whoever's came first makes the samples for all.
        salt: random numbers of samples are derived from it.
        window: bytes that are kept.
    """

    maker: SharedPipeline
    salt: int
    window: int
    pool: Pool = field(init=False)
    _watch: DatasetWatch | None = field(init=False, default=None)
    _samples: dict[int, _Made] = field(init=False, default_factory=dict)  # by instance
    _members: dict[tuple[str, int], _Member] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        chance = random.Random(self.salt)  # noqa: S311 - not a secret
        self.pool = Pool(self.maker.tiles, self.window, chance)
        if self.maker.pipeline.watched:
            self._watch = DatasetWatch(self.maker.pipeline.dataset)

    @property
    def idle(self) -> bool:
        """Whether no loader is to get anything more here."""
        return self.pool.idle

    def resize(self, window: int) -> None:
        """From now on so many bytes are kept."""
        self.pool.resize(window)
        self._trim()

    # ------------------------------------------------------------------ who shares

    def join(self, line: ConsumerConnection, stream: int, name: str, packed: object) -> None:
        """A loader begins an epoch, or has another part: what it is to get here.

        Raises:
            FrameError: it makes no sense.
            SharingError: there are too many.
        """
        try:
            lacks = lacks_of(packed, self.maker.tiles)
        except ValueError as error:
            raise FrameError(f"what a loader lacks: {error}") from error
        member = self._members.get((line.name, stream))
        if member is None:
            member = _Member(line, f"{line.name} {name}", stream)
            for key in [key for key, one in self._members.items() if one.name == member.name]:
                del self._members[key]  # its epoch before
            self._members[line.name, stream] = member
        member.told = 0
        # Who is to get a whole epoch here, or all but the tile with fewer samples, has nobody else.
        member.divides = bool(np.count_nonzero(lacks) < self.maker.tiles - 1)
        self.pool.join(member.name, lacks)
        self._trim()

    def rest(self, line: ConsumerConnection, stream: int) -> None:
        """A loader wants nothing more of an epoch; what it had is remembered for the next."""
        if (member := self._members.get((line.name, stream))) is not None:
            self.pool.join(member.name, np.zeros(self.maker.tiles, np.bool_))
            self._trim()

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""
        for key in [key for key, one in self._members.items() if one.line is line]:
            self.pool.leave(self._members.pop(key).name)
        self._trim()

    # ------------------------------------------------------------------ batches

    def make(
        self, request: Request, pipeline: SharedPipeline, guard: CollateGuard
    ) -> tuple[Any, Any]:
        """A batch, and the tiles that it is of: int64.

        Raises:
            NothingLeftError: there are not so many tiles.
            BatchOfTilesError: a sample or the collate function raised.
            KeepsStateError: making samples changes the dataset, which its program is to see.
        """
        member = self._members.get((request.line.name, request.stream))
        if member is None:
            raise NothingLeftError("it has not joined")
        member.batch_tiles = int(request.indices)
        picks = self.pool.choose(member.name, member.batch_tiles)
        if not picks:
            raise NothingLeftError("nothing is left here")
        samples = {pick: self._samples[pick.instance] for pick in picks if pick.held}
        tiles = [pick.tile for pick in picks]
        try:
            for pick in picks:
                if not pick.held:
                    samples[pick] = self._made(member, pick)
            self._trim()
            indices = [one for pick in picks for one in samples[pick].indices]
            together = [one for pick in picks for one in samples[pick].samples]
            seed = derive_seed(self.salt, request.step)
            batch = guard.collate(pipeline.pipeline, seed, indices, together)
        except KeepsStateError:
            raise
        except Exception as error:  # the user's code, whatever it raises
            for pick in picks:
                if not pick.held:
                    self.pool.note_failed(member.name, pick.instance)
            self._trim()
            raise BatchOfTilesError(error, tiles) from error
        return batch, np.array(tiles, np.int64)

    def _made(self, member: _Member, pick: Pick) -> _Made:
        seed = derive_seed(derive_seed(self.salt, pick.tile), pick.instance)
        indices = self.maker.samples(pick.tile)
        made = _Made(indices, self.maker.pipeline.samples(seed, indices))
        if self._watch is not None:
            self._watch.check()
        if self.pool.note_made(member.name, pick.instance, max(1, batch_bytes(made.samples))):
            self._samples[pick.instance] = made
        return made

    def _trim(self) -> None:
        for instance in self.pool.take_dropped():
            self._samples.pop(instance, None)

    def news(self) -> Iterator[tuple[ConsumerConnection, int, int]]:
        """What loaders are to be told: for streams whose number of batches that lie here is new.

        Those who can choose whom to ask: each message costs its program as much as half a batch.
        """
        for member in [one for one in self._members.values() if one.divides]:
            ready = min(MAX_TOLD, self.pool.ready(member.name) // member.batch_tiles)
            if ready != member.told:
                member.told = ready
                yield member.line, member.stream, ready
