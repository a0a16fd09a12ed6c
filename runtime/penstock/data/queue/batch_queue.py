"""One epoch's batches between the program that takes them and the data workers that bring them.

The queue of a stream is its reorder buffer and what data workers have to be told to fill it. All
queues of a process are guarded by one lock, that of their `Makers`: a data
worker that comes or goes concerns all of them. The program's side takes the lock itself; the pool's
side (`window`, `note_size`) is called with the lock held.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from penstock.base.enums import Guarantee, Sharding
from penstock.data.making import Cost, Making
from penstock.data.memory import Memory, room_for_batches
from penstock.data.partition.balance import Balance
from penstock.data.pinned.pool import Allocate, rounded
from penstock.data.pipeline import PackedPipeline
from penstock.data.queue.credits import PREFETCH
from penstock.data.streams.digest import UNKNOWN, chain_digest
from penstock.data.transport.messages import SILENCE_SECONDS
from penstock.data.window.affinity import Affinity
from penstock.data.window.free_share import FreeShare
from penstock.data.window.free_window import FreeWindow
from penstock.data.window.reorder_buffer import HERE, Failure, Need, ReorderBuffer
from penstock.data.window.stream_window import StreamWindow
from penstock.data.window.window_bound import Limit, WindowBound, bound_window

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 1.0
SHARED_WAIT_SECONDS: Final = 0.25
"""Of a loader that shares: so soon others are asked where a data worker stands still."""
PATIENCE_SECONDS: Final = SILENCE_SECONDS / 4
"""So long a step is kept for the data worker that it is for."""
AHEAD_TIMES: Final = 2
"""As far as otherwise steps are looked at, where each has a data worker that it is for."""
OPENING_SECONDS: Final = 10.0
"""So long after an epoch's beginning streams are kept for data workers that open the pipeline."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the batches of an epoch reach the program.

    Attributes:
        prefetch: batches that each maker is asked for ahead.
        lookahead: steps that the sampler may be asked for ahead of the program; None: any.
        batch_bytes: of the largest batch of the epochs before; 0: unknown.
        finish: what is done with each batch before the program gets it, in any thread.
        timeout_seconds: a wait for a batch that is longer is an error; 0: none is.
        allocate: of the pinned memory that local workers write to; None: they do not.
    """

    prefetch: int = PREFETCH
    lookahead: int | None = None
    batch_bytes: int = 0
    finish: Callable[[Any], Any] | None = None
    timeout_seconds: float = 0.0
    allocate: Allocate | None = None


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What the batches of a queue are.

    Attributes:
        key: of the pipeline, for local workers.
        seed: of the epoch.
        position: the first step that the program gets.
        packed: for data workers; None: not yet, or never.
        streams: how many there are of a dataset that is iterated; 0: it is indexed.
        ends: of streams that had ended before ``position``.
        opening_seconds: streams are kept for data workers that open the pipeline, so long.
        share: of its steps that data workers are to make; None: whoever is faster makes more.
        free: of a loader that shares with other jobs, in free order.
        sharding: whether a step, or a stream, has a data worker that it is for.
        until: the batched stage before which batches of makers of stage 0 end; None: none.
        devices: of the batched stages, one for each.
        movable: the batched stage of what moves from the program's step, which may be left out.
        balance: of which batches local workers make that; None: of all.
    """

    key: bytes
    seed: int
    position: int = 0
    streams: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    opening_seconds: float = OPENING_SECONDS
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    packed: PackedPipeline | None = None
    delivery: Delivery = field(default_factory=Delivery)
    share: float | None = None
    free: FreeShare | None = None
    sharding: Sharding = Sharding.DYNAMIC
    until: int | None = None
    devices: tuple[str, ...] = ()
    movable: int | None = None
    balance: Balance | None = None


class Counts:
    """What went through the queues of a process, for the reports.

    ``arrived``: batches that data workers brought; ``made_nearby``: that local workers made;
    ``made_here``: that the program made itself; ``in_line``, ``local``, ``remote``: what it cost.
    """

    def __init__(self) -> None:
        self.arrived = self.taken = self.made_here = self.made_nearby = self.duplicates = 0
        self.lost = self.left_out = self.received_bytes = self.weight_bytes = 0
        self.newest_left_out: deque[str] = deque(maxlen=8)
        self.waited_seconds = 0.0
        self.in_line, self.local, self.remote = Making(), Making(), Making()
        self.batch_bytes = 0  # of the newest that somebody brought
        self.cut = ""  # what data workers are to make of each, for the loader that is iterated

    def add_received(self, size: int) -> None:
        """So many bytes of a batch came over a network."""
        self.received_bytes += size

    def add_weights(self, size: int) -> None:
        """So many bytes of declared functions' weights were sent to a data worker."""
        self.weight_bytes += size

    def add_arrived(self, cost: Cost, size: int, *, local: bool) -> None:
        """A maker has brought a batch that was waited for."""
        (self.local if local else self.remote).add(cost)
        self.batch_bytes = size
        if local:
            self.made_nearby += 1
        else:
            self.arrived += 1

    def add_tail(self, cost: Cost) -> None:
        """A local worker has finished what a data worker had begun: one batch, made in two."""
        self.remote.seconds += cost.seconds
        self.remote.cpu_seconds += cost.cpu
        self.remote.queued_seconds += cost.queued
        self.made_nearby += 1

    def add_made_here(self, cost: Cost) -> None:
        """The program has made a step itself, or found it to have only bad samples."""
        self.waited_seconds += cost.seconds
        self.in_line.add(cost)
        self.made_here += 1

    def add_left_out(self, text: str) -> None:
        """A sample was left out."""
        self.left_out += 1
        self.newest_left_out.append(text[:1000])


class BatchQueue:
    """See the module's docstring.

    Attributes:
        number: what makers call the stream.
        key: of its pipeline, for the local workers that were born with it.
        packed: how its batches are made, as data workers are sent it; None: nobody needs it yet, or
            it cannot be sent.
        seed: of its epoch.
        window: its steps; only with the lock, but for what the program alone changes (`feed`).
        batch_bytes: of the largest batch so far, of this epoch or one before.
        finish: what is done with a batch before the program gets it, where it arrives.
        allocate: of the pinned memory that local workers write its batches to, if they do.
        staged: data workers of the last stage are asked alone, if there are any.
        bound: how many steps may be under way.
        share: of its steps that is forced on data workers, if one is.
        affinity: for whom its steps or streams are, with static sharding.
        opening_seconds: its streams are kept for data workers that open the pipeline, so long.
    """

    def __init__(
        self,
        lock: threading.Condition,
        counts: Counts,
        number: int,
        options: QueueOptions,
    ) -> None:
        self.number = number
        self.key = options.key
        self.packed = options.packed
        self.wants_packed = False  # a data worker is there that has to be sent it
        self.portable = True  # as far as is known: it could be packed
        self.keeps_state = False  # making its batches changes the dataset, which is the program's
        self.seed = options.seed
        self.share = options.share
        self.free = options.free
        self.tails_nearby = False  # local workers finish what data workers have begun
        self.passed_on: set[int] = set()  # steps that they do so with now
        self.failures = 0  # batches that somebody could not make
        self.staged, self._until, self._devices = (
            bool(options.devices),
            options.until,
            options.devices,
        )
        self._movable = options.movable if options.until is None else None
        self._balance = options.balance
        self._taken = False  # anything
        static = options.sharding is Sharding.STATIC
        self.affinity = Affinity(PATIENCE_SECONDS) if static else None
        self.window: ReorderBuffer | StreamWindow | FreeWindow
        if options.free is not None:
            self.window = options.free.window
        elif options.streams:
            self.window = StreamWindow(
                options.streams, options.position, 1, options.guarantee, options.ends
            )
        else:
            self.window = ReorderBuffer(options.position, 1, options.guarantee)
        self.opened_at, self.opening_seconds = time.monotonic(), options.opening_seconds
        self.batch_bytes = options.delivery.batch_bytes
        self.whole_bytes = 0  # of the largest batch that a local worker has finished
        self.finish = options.delivery.finish
        self.allocate = options.delivery.allocate
        self.bound = WindowBound(1, 1)
        self._delivery = options.delivery
        self.prefetch = options.delivery.prefetch
        """Unmade batches that each maker has at least, if there is room for them."""
        self._lock = lock
        self._counts = counts
        self._told = Limit.NEED

    def digest_for(self, *, local: bool) -> bytes | None:
        """What a maker knows the pipeline by; None: it cannot have it yet."""
        if local:
            return self.key
        return None if self.packed is None else self.packed.digest

    def suits(self, stage: int, devices: frozenset[str]) -> bool:
        """Whether a maker of a stage can make its batches, as far as they are asked of it."""
        return not stage or devices.issuperset(self._devices)

    def until_of(self, stage: int) -> int | None:
        """The batched stage before which batches of makers of a stage end; None: none."""
        return None if stage else self._until

    def requests(
        self, steps: list[tuple[int, Any]], stage: int, *, local: bool
    ) -> list[tuple[list[tuple[int, Any]], int | None]]:
        """What one maker is asked for, by the batched stage before which batches end.

        Data workers are as many as are worth it, and make all; of local ones see `Balance`.
        """
        balance, window = self._balance, self.window
        if self._movable is None or balance is None or not local:
            return [(steps, self.until_of(stage))]
        whole, plain = balance.divide(steps, ready=window.ready, ahead=window.ahead)
        return [one for one in ((plain, self._movable), (whole, None)) if one[0]]

    def keep_here(self) -> None:
        """No data worker is to make more of its batches."""
        self.keeps_state, self.portable, self.packed = True, False, None

    def take(
        self, drop_overdue: Callable[[], None], keep_workers: Callable[[], bool]
    ) -> tuple[Need | None, Any]:
        """As `ReorderBuffer.take`, after waiting for the batch as long as that helps.

        What the program must make itself is its own from then on, and comes with what `make_here`
        says: in between some maker could be asked for it.

        Args:
            drop_overdue: called now and then while it waits, with the lock held.
            keep_workers: likewise, without the lock; says whether local workers will make what
                nobody has.

        Raises:
            BadSampleError: three makers died while they made this step.
            RuntimeError: it took longer than the program wants to wait (PyTorch's ``timeout``).
        """
        began, limit = time.perf_counter(), self._delivery.timeout_seconds
        waited = False
        window, counts = self.window, self._counts
        most = WAIT_SECONDS if self.free is None else SHARED_WAIT_SECONDS
        elsewhere = keep_workers()
        while True:
            with self._lock:
                lost = window.lost
                need, batch = window.take(elsewhere=elsewhere)
                counts.lost += window.lost - lost
                if need is Need.WAIT:
                    waited = True
                    self._lock.wait(min(limit or most, most))
                    drop_overdue()
                elif need is Need.MAKE:
                    batch = window.make_here(time.monotonic())
                elif need is None:
                    counts.taken += 1
                    self._note_taken(waited=waited)
            if need is not Need.WAIT:
                break
            if limit and time.perf_counter() - began > limit:
                raise RuntimeError(f"DataLoader timed out after {limit:g} seconds")
            elsewhere = keep_workers()
        counts.waited_seconds += time.perf_counter() - began
        return need, batch

    def _note_taken(self, *, waited: bool) -> None:
        window = self.window
        if self._balance is None or not isinstance(window, ReorderBuffer):
            return
        if self._taken:  # the first of an epoch is always waited for
            self._balance.took(waited=waited, idle=not window.unmade)
        self._taken = True

    def make_here(self) -> tuple[Any, list[Failure]]:
        """As `ReorderBuffer.make_here`."""
        with self._lock:
            return self.window.make_here(time.monotonic())

    def made_here(self) -> None:
        """As `ReorderBuffer.made_here`."""
        with self._lock:
            self.window.made_here()

    @property
    def streams(self) -> bool:
        """Whether the dataset is iterated."""
        return isinstance(self.window, StreamWindow)

    def chain_digest(self, step: int, structure: Any, body: Any) -> int:
        """The digest of a stream's batches up to one that has just come."""
        with self._lock:
            window = self.window
            before = window.digest_before(step) if isinstance(window, StreamWindow) else UNKNOWN
        return chain_digest(before, structure, [body], len(body))

    def note_arrived(self, holder: str, step: int, batch: Any, digest: int) -> bool:
        """As `ReorderBuffer.arrived`, or `StreamWindow.arrived`; with the lock held."""
        if isinstance(self.window, StreamWindow):
            return self.window.arrived(holder, step, batch, digest)
        return self.window.arrived(holder, step, batch)

    def is_awaited(self, step: int) -> bool:
        """Whether the program may be waiting for this very batch; with the lock held."""
        return isinstance(self.window, FreeWindow) or self.window.position == step

    def note_end(self, holder: str, step: int, problem: str) -> None:
        """As `StreamWindow.ended`, or ``given_back`` of another window; with the lock held.

        ``problem``: why a stream cannot be gone on with; "": it has no more.
        """
        window = self.window
        if not isinstance(window, StreamWindow):
            window.given_back(holder, step, over=True)
            return
        lost = window.lost
        if window.ended(holder, step, repeatable=not problem) and problem:
            self._counts.lost += window.lost - lost
            number, batches = step % window.count, window.ends[step % window.count]
            logger.error(
                "stream %d of %d ends after %d batches, and what is left of it is lost with its "
                "maker: %s. A dataset that gives the same samples whenever it is begun with the "
                "same seed loses nothing",
                number,
                window.count,
                batches,
                problem,
            )

    def end_here(self, problem: str) -> None:
        """The program has found that the stream it makes a batch of has none, or has ended it."""
        with self._lock:
            self.note_end(HERE, self.window.position, problem)

    def note_failure(self, step: int, failure: Failure) -> None:
        """As `ReorderBuffer.failed`; with the lock held."""
        self.failures += 1
        self.window.failed(step, failure)

    def note_size(self, size: int) -> None:
        """A batch of so many bytes has come."""
        self.batch_bytes = max(self.batch_bytes, size)

    def note_unpinnable(self) -> None:
        """Its batches gain nothing by being written to pinned memory: they are no tensors."""
        self.allocate = None

    def bind(self, makers: int, memory: Memory, held_bytes: int) -> WindowBound:
        """Bound what is under way, in the memory that there is; says it when that is little."""
        streams = self.window.count if isinstance(self.window, StreamWindow) else 0
        bound = partial(
            bound_window,
            makers=min(makers, streams) if streams else makers,
            batch_bytes=_taken(self.batch_bytes, pinned=self.allocate is not None),
            room_bytes=room_for_batches(memory, held_bytes),
            lookahead=self._delivery.lookahead,
        )
        self.bound = bound(prefetch=self.prefetch)
        if self.affinity is not None and self.bound.limit is Limit.NEED and not streams:
            wider = bound(prefetch=AHEAD_TIMES * self.prefetch)  # to have steps to choose from
            self.bound = wider if wider.limit is Limit.NEED else self.bound
        self.window.ahead = self.bound.ahead
        if self.free is not None:
            self.window.ahead = self.free.bound(self.bound.ahead, self.batch_bytes, makers)
        if streams and makers > streams and self.bound.limit is Limit.NEED:
            self.bound = replace(self.bound, limit=Limit.STREAMS)
        # Until a batch has come its size is a guess, and not worth a line.
        limit = self.bound.limit if self.batch_bytes else Limit.NEED
        if limit is Limit.MEMORY and self._told is not Limit.MEMORY and self.bound.makers < makers:
            logger.warning(
                "batches of %s: %d of %d processes make them at once, and %d wait at most: of the "
                "%s of memory that this pod may use, %s are free",
                _text(self.batch_bytes),
                self.bound.makers,
                makers,
                self.bound.ahead,
                _text(memory.limit),
                _text(memory.free),
            )
            self._told = limit
        return self.bound


def _text(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def _taken(size: int, *, pinned: bool) -> int:
    """Bytes that a batch takes: pinned memory comes in powers of two."""
    return rounded(size) if pinned and size else size
