"""Shards of ``tf.data`` that the jobs of a share group have made once, and the proof before that.

Two programs share a shard where they say the same: function, shards, element_spec, ``seed``, and
the place among the processes that train. Which shards are read in what order follows from that, so
they have the same elements in the same order, and what one has had is there for the others.

What no digest sees, as another file behind the same name, is for the proof: before a program is
given anything that is shared it makes the first element itself and compares, bit by bit. Where
they differ it makes its elements itself. A shard that is another each time it is made is served as
without a group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import numpy as np

from penstock.base.enums import Guarantee
from penstock.data.batch_difference import first_difference
from penstock.data.complaints import Complaints
from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import NotPortableError
from penstock.data.pipeline import PackedPipeline
from penstock.data.sharing.stream_pipeline import pack_shared_streams
from penstock.data.streams.pipeline import StreamPipeline
from penstock.data.tensorflow.shard_dataset import Make, ShardDataset, Shards
from penstock.data.transport.batch_codec import Packer
from penstock.data.transport.layout import unpack

_complaints: Final = Complaints()


class NotSharedError(Exception):
    """An epoch's elements are not to be shared; nothing of it has been given to the program."""


class State(Enum):
    """What is known of the elements that data workers make for the group."""

    UNKNOWN = auto()
    SAME = auto()
    OTHER = auto()  # data workers are to make none for this program
    OWN = auto()  # they make them for each program


def shard_name(dataset: Any, place: int, key: int) -> tuple[int, int]:
    """`penstock.data.sharing.stream_pipeline.NameStream` of shards: which one, and its seed."""
    found: tuple[int, int] = dataset.shard_of(place, key)
    return found


@dataclass
class ShardSharing:
    """How the epochs of one dataset are shared.

    Attributes:
        pipeline: as data workers make its elements for this program alone.
        group: the share group's name.
        window_bytes: of elements that each data worker keeps; 0: as its memory allows.
    """

    make: Make
    shards: Shards
    pipeline: StreamPipeline
    consumer: Consumer
    group: str
    window_bytes: int = 0
    state: State = State.UNKNOWN
    _packed: PackedPipeline | None = field(init=False, default=None)

    @property
    def served(self) -> bool:
        """Whether data workers are to make elements for this program."""
        return self.state is not State.OTHER

    def shares(self, step: int) -> bool:
        """Whether an epoch that begins with this step of a round is shared, or to be proven so.

        A proof needs the first element of a shard: later ones would cost all that come before.
        """
        proves = self.state is State.UNKNOWN and not step
        if not proves and self.state is not State.SAME:
            return False
        try:
            self.pack()
        except NotPortableError as error:
            self._serve_alone(f"its function cannot be compared with others: {error}")
            return False
        return True

    def pack(self) -> PackedPipeline:
        """For data workers.

        Raises:
            NotPortableError: it cannot be sent; says why.
        """
        if self._packed is None:
            shards = self.shards
            content = self.make, shards.items, shards.components, shards.order.count
            token = self.consumer.token
            self._packed = pack_shared_streams(
                self.pipeline, content, shard_name, self.window_bytes, token
            )
        return self._packed

    def prove(self, epoch: int, number: int, there: Any, *, made_here: bool) -> None:
        """Compare an epoch's first element, unless that is known already.

        Args:
            epoch: the epoch's number.
            number: of the round that the element is the first of.
            there: the element that came.
            made_here: no data worker made it.

        Raises:
            NotSharedError: it is another, or nothing is known; what is other is said.
            Exception: whatever the program's function raises.
        """
        if self.state is not State.UNKNOWN:
            return
        if made_here:
            raise NotSharedError
        here = self._first(epoch, number)
        found = first_difference(here, there, "element")
        if found is None:
            self.state = State.SAME
            return
        again = first_difference(here, self._first(epoch, number), "element")
        if again is not None:
            self._serve_alone(f"a shard's first element is another each time it is made ({again})")
        else:
            self.state = State.OTHER
            text = "and is served by no data worker: what these make is something else"
            self._say(f", {text}: {found}")
        raise NotSharedError

    def _first(self, epoch: int, number: int) -> Any:
        """The first element from a round on, as one that has come from a data worker."""
        dataset, made = ShardDataset(self.make, self.shards), None
        for place, key in self.shards.order.places_from(epoch, number):
            dataset.begin(place, key)
            if (made := next(iter(dataset), None)) is not None:
                break
        packed = Packer().pack(made)
        body = b"".join(packed.parts)
        return unpack(packed.structure, np.frombuffer(body, np.uint8), packed.size)

    def _serve_alone(self, why: str) -> None:
        self.state = State.OWN
        self._say(f": {why}")

    def _say(self, text: str) -> None:
        name = getattr(self.make, "__qualname__", type(self.make).__qualname__)
        _complaints.add(f"a dataset of {name}", f"does not share with group {self.group}{text}")


def sharing_of(
    consumer: Consumer | None,
    make: Make,
    shards: Shards,
    pipeline: StreamPipeline,
    guarantee: Guarantee,
) -> ShardSharing | None:
    """How a dataset is shared; None: its process is of no share group."""
    asked = None if consumer is None else consumer.options().share
    if consumer is None or asked is None:
        return None
    found = ShardSharing(make, shards, pipeline, consumer, asked.group, asked.window_bytes)
    if shards.endless:
        found._serve_alone("its shards have no end")
    elif guarantee is Guarantee.UNSHARDED:
        found._serve_alone("each of its processes has all shards in an order of its own")
    return found
