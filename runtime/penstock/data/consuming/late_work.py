"""What of its batches a program makes itself, after others have begun them.

These are stages of whole batches for which nobody was there, and the ends of samples in front of
which its pipeline is cut (`penstock.data.cuts`). Both run in the program's own thread, as they draw
from the process's generators, in the state and with the bits that they would have elsewhere.

Where the cut is may change at any time: batches say themselves how far they are made. One that
cannot be made in two places is whole, and a batch that differs from the one that is made in one
place ends the cut; one line says why.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.crds import environment as names
from penstock.data.complaints import Complaints
from penstock.data.consuming.cut_chooser import CutChooser
from penstock.data.consuming.tail_chooser import TailChooser
from penstock.data.cuts.head_and_tail import Begun, Tail, head_of, opened
from penstock.data.cuts.points import Point, point_named
from penstock.data.cuts.reading import read_local, survey_reading
from penstock.data.cuts.survey import survey
from penstock.data.errors import NotCutError
from penstock.data.pipeline import PackedPipeline, Pipeline, Unfinished
from penstock.data.queue.batch_queue import BatchQueue
from penstock.data.queue.worker_pool import WorkerPool
from penstock.data.seeding import preserved
from penstock.throughput.decision.cut_choice import Reading
from penstock.throughput.limits.cut import READ_LOCAL, WHOLE_BATCH, tail_local
from penstock.throughput.profiles.stage import StageCost

_complaints: Final = Complaints()


@dataclass
class LateWork:
    """Of one stream; see the module's docstring.

    Attributes:
        pipeline: of the program.
        seed: of the epoch.
        pack_whole: packs what data workers make if nothing is cut; raises NotPortableError.
        pack_cut: packs what makes the beginnings of samples alone; None: it is never cut.
        chooser: decides where, unless the environment says; None: nobody does.
    """

    pipeline: Pipeline
    seed: int
    pack_whole: Callable[[], PackedPipeline]
    pack_cut: Callable[[Pipeline], PackedPipeline] | None
    chooser: CutChooser | None = None
    _changed: bool = False
    _asked: str = ""
    _point: Point | None = None
    _roots: tuple[str, ...] = ()  # folders that are read here for data workers
    _refused: bool = False
    _tails: dict[Point, Tail] = field(default_factory=dict)
    _tail: TailChooser = field(default_factory=TailChooser)
    _indices: deque[tuple[int, Any]] = field(default_factory=deque)  # by step, in order

    def note(self, step: int, indices: Any, taken: int) -> None:
        """A step comes into view, of which the program has taken so many."""
        self._forget(taken)
        self._indices.append((step, indices))

    def _forget(self, before: int) -> None:
        while self._indices and self._indices[0][0] < before:
            self._indices.popleft()

    def __post_init__(self) -> None:
        """Know what is wanted before the first batch is asked for."""
        if self.chooser is not None:
            self.chooser.begin()
            self._tail = self.chooser.tail
        self._look()
        self._changed = False

    def tend(
        self, pool: WorkerPool, queue: BatchQueue, pack: Callable[[], PackedPipeline | None]
    ) -> None:
        """Now and then: have data workers make another part of each batch, where that is wanted.

        ``pack``: gives what `pack` does, or None.
        """
        if queue.packed is None:
            return  # they make none
        if self.chooser is not None and self.pack_cut is not None and forced_cut() is None:
            self.chooser.look(pool, self._survey, self._survey_reading, queue.failures)
        self._look()
        pool.counts.cut = self.cut
        self._tend_tail(pool, queue)
        if self._roots:
            pool.makers.files.allow(self._roots)
        if self._changed:
            self._changed = False
            pool.replace(queue, pack())

    def _tend_tail(self, pool: WorkerPool, queue: BatchQueue) -> None:
        """Decide who makes the ends of samples, once it is proven that they can be made so."""
        point = self._point
        tail = None if point is None else self._tails.get(point)
        if tail is None or not tail.is_proven:
            queue.tails_nearby = False
            return
        self._tail.look(pool.local_workers)
        queue.tails_nearby = self._tail.in_workers

    @property
    def cut(self) -> str:
        """What data workers are to make of each batch, as the model calls it."""
        if self._roots:
            return READ_LOCAL
        return WHOLE_BATCH if self._point is None else tail_local(self._point.name)

    def _look(self) -> None:
        """Note whether what data workers are to make has become another."""
        forced = forced_cut()
        asked = (self.chooser.cut if self.chooser is not None else "") if forced is None else forced
        if self.pack_cut is None or self._refused or asked == self._asked:
            return
        if asked == READ_LOCAL and not self._indices:
            return  # no batch is in view that would say what it reads
        self._asked, before = asked, (self._point, self._roots)
        self._point, self._roots = None, ()
        if asked == READ_LOCAL:
            self._roots = self._folders()
        elif asked:
            try:
                self._point = point_named(self.pipeline, asked)
            except NotCutError as error:
                self._say(str(error))
        self._changed = self._changed or (self._point, self._roots) != before

    def _folders(self) -> tuple[str, ...]:
        """What is read here for data workers; (): nothing is."""
        if self.chooser is not None and self.chooser.roots:
            return self.chooser.roots
        try:
            roots = self._survey_reading()[1]
        except NotCutError as error:
            self._say(str(error))
            return ()
        except Exception as error:  # noqa: BLE001 - the user's code: it raises where a batch is made
            self._say(f"a sample raised {error!r}")
            return ()
        if self.chooser is not None:
            self.chooser.roots = roots
        return roots

    def _survey_reading(self) -> tuple[Reading, tuple[str, ...]]:
        """As `penstock.data.cuts.reading.survey_reading`, of a batch that is in view."""
        if not self._indices:
            raise NotCutError("no batch is in view")
        with preserved():
            return survey_reading(self.pipeline, self.seed, self._indices[0][1])

    def _survey(self) -> list[StageCost]:
        """What the stages of a batch cost that is in view; as `penstock.data.cuts.survey`.

        Raises:
            NotCutError: it cannot be cut, or no batch is in view.
        """
        if not self._indices:
            raise NotCutError("no batch is in view")
        with preserved():
            return survey(self.pipeline, self.seed, self._indices[0][1])

    def pack(self) -> PackedPipeline:
        """What data workers are to make, packed; raises as ``pack_whole``."""
        point, pack = self._point, self.pack_cut
        if self._roots and pack is not None:
            return pack(read_local(self.pipeline, self._roots))
        if point is None or pack is None:
            return self.pack_whole()
        return pack(head_of(self.pipeline, point))

    def finish(self, step: int, batch: Any, then: Callable[[Any], Any] | None) -> tuple[bool, Any]:
        """A step's batch, whole, from what has come of it; ``then``: done with each that comes.

        Returns: True and the batch, or False and the indices of one that the program is to make.
        """
        self._forget(step)
        indices = self._indices[0][1]
        if isinstance(batch, Unfinished):
            with preserved():
                whole = self.pipeline.finish(self.seed, indices, batch.batch, batch.begin)
            return True, whole if then is None else then(whole)
        try:
            arrived, why = opened(batch)
        except (TypeError, ValueError, LookupError, AttributeError):
            self._refuse("what has come of a batch cannot be read")
            return False, indices
        if why:
            self._refuse(why)
        if not isinstance(arrived, Begun):
            came = arrived is not batch  # nothing has been done with it yet
            return True, then(arrived) if came and then is not None else arrived
        if self._refused:  # it was asked for before
            return False, indices
        made, found = self._end(indices, arrived)
        if not made:
            if found:
                self._refuse(found)
            return False, indices
        return True, found if then is None else then(found)

    def _end(self, indices: Any, begun: Begun) -> tuple[bool, Any]:
        """True and the batch; False and why the cut ends, or "" where this batch alone is whole."""
        tail = self._tails.get(begun.point)
        if tail is None:
            tail = self._tails[begun.point] = Tail(self.pipeline, begun.point)
        with preserved(), self._tail.spent():
            try:
                batch, made = tail.finish(self.seed, indices, begun)
            except Exception:  # noqa: BLE001 - the user's code: it raises where all is made again
                return False, ""
            if not made:
                return False, ""
            found = tail.differs(batch, lambda: self.pipeline.make(self.seed, indices))
        return (False, found) if found else (True, batch)

    def _refuse(self, why: str) -> None:
        """Never cut it again."""
        if not self._refused:
            self._refused, self._changed = True, self._point is not None
            self._point = None
            self._say(why)

    def _say(self, why: str) -> None:
        dataset = type(self.pipeline.dataset).__qualname__
        where = (
            "so that it is read here" if self._asked == READ_LOCAL else f"in front of {self._asked}"
        )
        text = f"is not cut {where}, data workers make whole batches: {why}"
        _complaints.add(f"a loader of {dataset}", text)


def forced_cut() -> str | None:
    """In front of which stage loaders are to be cut, whatever the job says; None: it says."""
    return os.environ.get(names.DATA_CUT)
