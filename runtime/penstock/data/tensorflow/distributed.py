"""A ``tf.data.Dataset`` in the training program, of shards that data workers read.

    from penstock.data.tensorflow import distribute

    def make_dataset(file):
        return tf.data.TFRecordDataset(file).map(parse).shuffle(1000).batch(64)

    data = distribute(make_dataset, shards=files)
    for epoch in range(3):
        for batch in data:
            ...

The function runs in the data workers of ``penstock run --data-workers``, on Kubernetes in those of
the job, and in the program itself where there are none. The order of elements is a pure function of
(shards, seed, epoch, training process): the same with any number of data workers, or none. Each
element comes once, also where data workers die, if a shard gives the same whenever it is made.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from penstock.base.enums import Guarantee
from penstock.data.consuming.batch_stream import Source, StreamOptions, options_of
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.process import consumer_of_process
from penstock.data.ledger import derive_seed
from penstock.data.pipeline import PackedPipeline, pack_pipeline
from penstock.data.streams.pipeline import StreamPipeline, ranks_of
from penstock.data.tensorflow.element_spec import components_of, reader_of
from penstock.data.tensorflow.epoch import CLOSED, Epoch, EpochClosedError, Place
from penstock.data.tensorflow.shard_dataset import (
    Make,
    ShardDataset,
    Shards,
    as_it_is,
    begin_shard,
    check_dataset,
    items_of,
    seeded,
)
from penstock.data.tensorflow.shard_order import MAX_CYCLE, ShardOrder
from penstock.data.tensorflow.shard_sharing import NotSharedError, sharing_of

logger = logging.getLogger(__name__)

STATE_VERSION: Final = 1
CYCLE_LENGTH: Final = 16
PREFETCH: Final = 2
_numbers = itertools.count()


def distribute(
    make_dataset: Make,
    shards: Any,
    *,
    element_spec: Any = None,
    shuffle: bool = True,
    seed: int = 0,
    cycle_length: int | None = None,
    prefetch: int = PREFETCH,
    endless: bool = False,
    index: int | None = None,
    count: int | None = None,
    consumer: Consumer | None = None,
) -> DistributedDataset:
    """Have data workers run ``make_dataset(shard)`` for each shard, once in each epoch.

    Args:
        make_dataset: gives a ``tf.data.Dataset``, batched as the program wants its elements.
        shards: a list, of files for instance, whose items the function is given; or how many there
            are: then it is given a number from 0.
        element_spec: what all shards have; by default what the first one has.
        shuffle: the shards are in another order in each epoch.
        seed: of that order, and of TensorFlow's random operations in the shards.
        cycle_length: shards that are read at a time, an element of each in turn; one data worker
            per shard can be of use. 16 by default, or all where they are fewer.
        prefetch: elements that are in the program ahead of it.
        endless: the shards' datasets may have no end; then all are read at a time, and an epoch
            ends with the program.
        index: which of the training processes this is; by default as ``RANK`` or ``TF_CONFIG``
            says.
        count: of the training processes, which divide the shards; by default as they say.
        consumer: instead of the process's own, which is there under ``penstock run``.

    Raises:
        ValueError, TypeError: an argument cannot be used, or the first shard's dataset; says why.
    """
    if not callable(make_dataset):
        raise TypeError(
            f"make_dataset: {make_dataset!r}; must be a function that gives a tf.data.Dataset for "
            "a shard"
        )
    if type(seed) is not int:
        raise TypeError(f"seed: {seed!r}; must be an integer")
    number, items = items_of(shards)
    told_index, told_count = place_among(os.environ)
    index = told_index if index is None else index
    count = told_count if count is None else count
    consumer = consumer or consumer_of_process()
    guarantee = options_of(consumer).guarantee
    if guarantee is Guarantee.UNSHARDED:  # everybody has all shards, in an order of its own
        seed, index, count = derive_seed(seed, index), 0, 1
        guarantee = Guarantee.EXACTLY_ONCE
    if cycle_length is None or endless:
        own = -(-number // max(1, count))
        cycle_length = max(1, own if endless else min(CYCLE_LENGTH, own))
    if endless and cycle_length > MAX_CYCLE:
        raise ValueError(
            f"shards: {cycle_length} for this process; endless ones are all read at a time, and "
            f"that are {MAX_CYCLE} at most"
        )
    order = ShardOrder(number, seed, shuffle, index, count, cycle_length)
    if prefetch < 1:
        raise ValueError(f"prefetch: {prefetch}; must be at least 1")
    plan = Shards(items, order, (), endless)
    if element_spec is None:
        with seeded(order.seed_of(0, 0)):
            first = make_dataset(0 if items is None else items[0])
        check_dataset(first, plan, 0)
        element_spec = first.element_spec
    plan = Shards(items, order, components_of(element_spec), endless)
    options = StreamOptions(guarantee=guarantee, skip_bad=False)
    return DistributedDataset(make_dataset, plan, element_spec, options, consumer, prefetch)


class DistributedDataset:
    """What `distribute` gives: each ``iter`` is the next epoch.

    Attributes:
        element_spec: of each element, as that of a ``tf.data.Dataset``.
    """

    def __init__(
        self,
        make_dataset: Make,
        shards: Shards,
        element_spec: Any,
        options: StreamOptions,
        consumer: Consumer | None,
        prefetch: int,
    ) -> None:
        self.element_spec = element_spec
        self._order = shards.order
        self._options = options
        self._consumer = consumer
        self._prefetch = prefetch
        self._read = reader_of(element_spec, shards.components)
        self._group = f"tf-data-{next(_numbers)}"
        self._pipeline = StreamPipeline(
            ShardDataset(make_dataset, shards),
            as_it_is,
            None,
            setup=begin_shard,
            environ=ranks_of(dict(os.environ)),
        )
        self._packed: PackedPipeline | None = None
        self._sharing = sharing_of(
            consumer,
            make_dataset,
            shards,
            self._pipeline,
            options.guarantee or Guarantee.EXACTLY_ONCE,
        )
        self._number = 0  # of the next epoch
        self._start = Place()  # of that
        self._epoch: Epoch | None = None
        self._had: int | None = None  # elements of the present epoch, where ``iter`` counts them
        self._raised: Exception | None = None

    @cached_property
    def dataset(self) -> Any:
        """The ``tf.data.Dataset``: for ``model.fit``, or to go on with ``.map`` and others.

        Each time it is iterated is an epoch. One is iterated at a time: who goes on with one when
        the next has begun gets an error.
        """
        import tensorflow as tf

        made = tf.data.Dataset.from_generator(self._begin_epoch, output_signature=self.element_spec)
        return made.prefetch(self._prefetch)

    def __iter__(self) -> Iterator[Any]:
        """The elements of the next epoch, as tensors.

        Raises:
            ElementSpecError: a shard's dataset is none, or not as declared.
            Exception: what the program's function raised, or TensorFlow in it.
        """
        import tensorflow as tf

        iterator, first = iter(self.dataset), True
        had = self._start.elements
        while True:
            try:
                element = next(iterator)
            except StopIteration:
                return
            except tf.errors.OpError as error:
                if self._raised is None:
                    raise
                raise self._raised from error
            finally:
                if first:
                    first, mine, self._had = False, self._epoch, had
            had += 1
            if self._epoch is mine:
                self._had = had
            yield element

    @property
    def lost(self) -> int:
        """Elements of the present epoch that were lost; 0 but for `Guarantee.AT_MOST_ONCE`.

        Also those of a shard that was not the same when it was begun again.
        """
        return 0 if self._epoch is None else self._epoch.lost

    def state_dict(self, given: int | None = None) -> dict[str, Any]:
        """Where the program is: put it into the checkpoint, beside the model that saw it.

        Args:
            given: elements of the present epoch that the program has had, those before a
                ``load_state_dict`` included; by default those that iterating this object gave. Who
                iterates ``dataset`` has to say, since TensorFlow fetches ahead of the program.

        Raises:
            ValueError: ``given`` is missing, or cannot be.
        """
        epoch, start, number = self._epoch, self._start, self._number
        if epoch is not None:
            given = self._had if given is None else given
            if given is None and not epoch.finished:
                raise ValueError(
                    "given: not said, and data.dataset was iterated, of which TensorFlow fetches "
                    "elements ahead: say how many of this epoch the program has had"
                )
            place = None if given is None else epoch.place(given)
            number = epoch.number if place is not None else epoch.number + 1
            start = place or Place()
        return {
            "version": STATE_VERSION,
            "epoch": number,
            "round": start.number,
            "step": start.step,
            "ends": sorted(start.ends.items()),
            "elements": start.elements,
            **self._identity,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there with the next ``iter``.

        Raises:
            ValueError: it is not a state of such a dataset; says in what it differs.
        """
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"version: {state.get('version')!r}; this dataset reads {STATE_VERSION}"
            )
        for field, here in self._identity.items():
            if (there := state.get(field)) != here:
                raise ValueError(
                    f"{field}: the state was saved with {there!r}, this dataset has {here!r}: "
                    "elements would be lost or repeated"
                )
        wanted = [state.get(key) for key in ("epoch", "round", "step", "elements")]
        if not all(type(one) is int and one >= 0 for one in wanted):
            raise ValueError(
                f"state: {wanted}; epoch, round, step and elements are integers from 0"
            )
        number, step, elements = state["round"], state["step"], state["elements"]
        if number >= self._order.rounds:
            raise ValueError(f"round: {number}; an epoch has {self._order.rounds}")
        ends = {int(place): int(end) for place, end in state["ends"]}
        self.close()
        self._number = state["epoch"]
        self._start = Place(number, step, ends, elements)

    def close(self) -> None:
        """The present epoch is over: nothing more of it is wanted."""
        if self._epoch is not None:
            self._epoch.close()
        self._epoch = self._had = None

    @property
    def _identity(self) -> dict[str, Any]:
        """What a state depends on."""
        order = self._order
        return {
            "shards": order.count,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "cycle_length": order.cycle_length,
            "index": order.index,
            "count": order.processes,
        }

    def _pack(self) -> PackedPipeline:
        if self._packed is None:
            token = self._consumer.token if self._consumer is not None else ""
            self._packed = pack_pipeline(self._pipeline, token)
        return self._packed

    def _begin_epoch(self) -> Iterator[Any]:
        """The elements of the next epoch as NumPy's arrays; ends the one before."""
        self.close()
        number, start = self._number, self._start
        self._number, self._start, self._raised = number + 1, Place(), None
        epoch = self._epoch = self._open(number, start, share=True)
        return self._watched(epoch, start)

    def _open(self, number: int, start: Place, *, share: bool) -> Epoch:
        """``share``: with the jobs of the process's group, if there are any."""
        sharing = self._sharing
        consumer = self._consumer if sharing is None or sharing.served else None
        shared = share and sharing is not None and sharing.shares(start.step)
        pack = sharing.pack if sharing is not None and shared else self._pack

        def read(batch: Any) -> Any:
            if sharing is not None and shared:
                sharing.prove(number, start.number, batch, made_here=epoch.made_here)
            return self._read(batch)

        epoch = Epoch(
            consumer,
            Source(self._pipeline, b"", pack, at_once=True),
            self._order,
            number,
            self._options,
            group=self._group,
            start=start,
            read=read,
            shared=shared,
        )
        return epoch

    def _watched(self, epoch: Epoch, start: Place) -> Iterator[Any]:
        """The elements; what raises is kept, since TensorFlow tells its text alone.

        TensorFlow forgets this iterator when the program does, in a thread of its own.
        """
        try:
            try:
                yield from epoch
            except NotSharedError:  # before its first element
                epoch.close()
                if self._epoch is not epoch:
                    raise EpochClosedError(CLOSED) from None
                epoch = self._epoch = self._open(epoch.number, start, share=False)
                yield from epoch
        except Exception as error:
            if self._epoch is epoch or self._epoch is None:
                self._raised = error
            raise
        finally:
            epoch.abandon()


def place_among(environ: Mapping[str, str]) -> tuple[int, int]:
    """Which of how many training processes this is, as launchers tell it.

    ``RANK`` and ``WORLD_SIZE``, or TensorFlow's ``TF_CONFIG``, whose chief comes before its
    workers; without either there is one.
    """
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and world.isdecimal():
        return int(rank), int(world)
    try:
        config = json.loads(environ.get("TF_CONFIG") or "{}")
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
        kind, number = task.get("type"), int(task.get("index", 0))
    except (ValueError, TypeError, AttributeError):
        logger.warning("TF_CONFIG cannot be read: this process is taken for the only one")
        return 0, 1
    if kind == "chief":
        return number, chiefs + workers
    return (chiefs + number, chiefs + workers) if kind == "worker" else (0, 1)
