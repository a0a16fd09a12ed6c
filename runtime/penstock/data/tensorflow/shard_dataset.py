"""The elements of one shard, in whichever process makes them: a data worker, or the program.

A `penstock.data.streams.pipeline.StreamPipeline` iterates a `ShardDataset`; which shard that is
follows from the round that it is asked for. A shard's dataset is built with TensorFlow's global
seed set for that epoch and shard, so that ``shuffle`` without a seed gives the same wherever and
whenever the shard is begun, and with ``deterministic``, without which no order is repeatable.

In a data worker TensorFlow is told of the cores that the pod has, of which it would see the
machine's, and of no accelerator. The program's own TensorFlow is left as the program has it.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.cores import usable_cores
from penstock.data.errors import DataError
from penstock.data.memory import read_memory
from penstock.data.tensorflow.components import Component, difference, encode
from penstock.data.tensorflow.element_spec import ElementSpecError, components_of
from penstock.data.tensorflow.function_pickle import dump_function
from penstock.data.tensorflow.shard_order import ShardOrder, read_round_key

READ_AHEAD: Final = 2
"""Elements of each shard that TensorFlow makes while others are sent."""
MEMORY_SHARE: Final = 8
"""TensorFlow's autotuning may fill this part of the pod's memory; of a machine's it takes half."""
_PROCESS: Final = secrets.token_hex(8)
"""Tells this process from others, also from those that run on other machines."""

Make = Callable[[Any], Any]
"""The user's function: a shard, or its number, to a ``tf.data.Dataset``."""


@dataclass(frozen=True)
class Shards:
    """What there is to read, and how.

    Attributes:
        items: what the function is given for each shard; None: its number.
        order: which of them are read when.
        components: that each element is to have.
        endless: shards may have no end.
    """

    items: tuple[Any, ...] | None
    order: ShardOrder
    components: tuple[Component, ...]
    endless: bool = False

    def name(self, shard: int) -> str:
        """What the user knows a shard by."""
        return f"shard {shard}" + ("" if self.items is None else f" ({self.items[shard]!r})")


class ShardDataset:
    """See the module's docstring; iterated after `begin`, by one thread."""

    def __init__(self, make: Make, shards: Shards, home: str = _PROCESS) -> None:
        self._make = make
        self._shards = shards
        self._home = home
        self._begun: tuple[int, int] | None = None  # shard, seed

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (dump_function(self._make), self._shards, self._home)

    def begin(self, place: int, key: int) -> None:
        """The next ``iter`` is of the shard at that place of that round."""
        self._begun = self.shard_of(place, key)

    def shard_of(self, place: int, key: int) -> tuple[int, int]:
        """The shard at a place of a round, and what its random operations are seeded with."""
        epoch, number = read_round_key(key)
        order = self._shards.order
        shard = order.shard(epoch, number, place)
        return shard, order.seed_of(epoch, shard)

    def __iter__(self) -> Iterator[list[Any]]:
        """The elements of the shard, encoded.

        Raises:
            ElementSpecError: its dataset is none, or not as declared.
            Exception: whatever the user's function raises.
        """
        if self._begun is None:
            raise DataError("a shard is begun before it is iterated")
        import tensorflow as tf

        away = self._home != _PROCESS
        if away:
            _bound_process(tf)
        shards, (shard, seed) = self._shards, self._begun
        item = shard if shards.items is None else shards.items[shard]
        with seeded(seed):
            dataset = self._make(item)
            check_dataset(dataset, shards, shard)
            dataset = _bounded(tf, dataset, shards.order.cycle_length, away=away)
        flatten, components = tf.nest.flatten, shards.components
        for element in dataset.as_numpy_iterator():
            yield encode(components, flatten(element))


def check_dataset(dataset: Any, shards: Shards, shard: int) -> None:
    """Whether it can be what a shard has.

    Raises:
        ElementSpecError: it cannot; names the shard and says what to do.
    """
    import tensorflow as tf

    name = shards.name(shard)
    if not isinstance(dataset, tf.data.Dataset):
        kind = type(dataset)
        raise ElementSpecError(
            f"{name}: the function gave a {kind.__module__}.{kind.__qualname__}; it must return a "
            "tf.data.Dataset"
        )
    if not shards.endless and int(dataset.cardinality()) == int(tf.data.INFINITE_CARDINALITY):
        raise ElementSpecError(
            f"{name}: its dataset has no end, so no epoch would have one: leave out .repeat(), or "
            "use .take(n), or say endless=True"
        )
    if shards.components and (
        why := difference(shards.components, components_of(dataset.element_spec))
    ):
        raise ElementSpecError(
            f"{name}: {why}; give distribute(element_spec=...) what all shards have"
        )


def begin_shard(dataset: ShardDataset, place: int, key: int) -> None:
    """`penstock.data.streams.pipeline.Setup` of these streams: the round's key is their seed."""
    dataset.begin(place, key)


def as_it_is(element: Any) -> Any:
    """Collates what is a batch already."""
    return element


def _opened(function: bytes, shards: Shards, home: str) -> ShardDataset:
    # Part of a pipeline whose signature has been checked.
    return ShardDataset(pickle.loads(function), shards, home)  # noqa: S301


def _bounded(tf: Any, dataset: Any, together: int, *, away: bool) -> Any:
    """The dataset with what the program's author has left open of threads and memory."""
    cores = max(1, int(usable_cores()))
    given, options = dataset.options(), tf.data.Options()
    options.deterministic = True
    if given.autotune.cpu_budget is None:
        options.autotune.cpu_budget = cores
    if given.autotune.ram_budget is None:
        options.autotune.ram_budget = read_memory().limit // MEMORY_SHARE
    if not away and given.threading.private_threadpool_size is None:
        # Its elements are taken within an operation, which has a thread of the shared pool: with
        # one thread in that there would be none left to make them.
        options.threading.private_threadpool_size = max(2, cores // together)
    return dataset.with_options(options).prefetch(READ_AHEAD)


_bound: Final[list[bool]] = []


def _bound_process(tf: Any) -> None:
    """Have TensorFlow use what this data worker has, the first time it is used here."""
    if _bound:
        return
    _bound.append(True)
    cores = max(1, int(usable_cores()))
    try:
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        tf.config.threading.set_intra_op_parallelism_threads(cores)
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:  # the user's modules have used TensorFlow when they were imported
        return


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have TensorFlow's global seed be another one, and afterwards the program's own again.

    It is the process's, so operations that another thread of the program makes in between draw from
    this seed. They are few: it takes as long as building one dataset.
    """
    import tensorflow as tf

    context = _context()
    before = None if context is None else (context._seed, context._rng)
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        if context is not None and before is not None:
            context._seed, context._rng = before


def _context() -> Any:
    """What holds the global seed; TensorFlow has no public way to read it."""
    try:
        from tensorflow.python.eager import context
    except ImportError:
        return None
    found = context.context()
    return found if hasattr(found, "_seed") and hasattr(found, "_rng") else None


def items_of(shards: Any) -> tuple[int, tuple[Any, ...] | None]:
    """How many shards are meant, and what each is.

    Raises:
        TypeError, ValueError: it is neither a number nor a sequence.
    """
    if (
        isinstance(shards, bool)
        or not isinstance(shards, int | Sequence)
        or isinstance(shards, str | bytes)
    ):
        raise TypeError(
            f"shards: {shards!r}; must be how many there are, or a list, of files for instance"
        )
    if isinstance(shards, int):
        return shards, None
    return len(shards), tuple(shards)
