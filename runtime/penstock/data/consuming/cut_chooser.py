"""Whether one loader's data workers are to end in front of a stage: as its process sees the link.

Looks once in some seconds at what the process counts, and leaves the decision to
`penstock.throughput.decision.cut_choice`. Only data workers behind a network count: with those on
the same machine nothing lies between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.data.cores import usable_cores
from penstock.data.errors import NotCutError
from penstock.data.queue.worker_pool import WorkerPool
from penstock.throughput.decision.cut_choice import (
    LEAST_BATCHES,
    LEAST_SECONDS,
    CutChoice,
    Phase,
    Window,
    choose,
    watch,
)
from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.stage import StageCost

logger = logging.getLogger(__name__)

Survey = Callable[[], Sequence[StageCost]]
"""What the stages cost; raises NotCutError, or what the user's code raises."""


@dataclass(frozen=True, slots=True)
class _Counted:
    at: float
    taken: int
    waited_seconds: float
    received_bytes: int
    remote_batches: int
    remote_seconds: float
    data_workers: int


class CutChooser:
    """See the module's docstring; of one loader, from epoch to epoch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: of seconds."""
        self._clock = clock
        self._choice = CutChoice()
        self._before: _Counted | None = None

    @property
    def cut(self) -> str:
        """The stage in front of which data workers are to end; "": they make whole batches."""
        return self._choice.cut

    @property
    def is_settled(self) -> bool:
        """Whether it is decided for good."""
        return self._choice.phase is Phase.DONE

    def begin(self) -> None:
        """An epoch begins: what was between two is of no window."""
        self._before = None

    def look(self, pool: WorkerPool, survey: Survey) -> None:
        """Decide anew where some seconds have gone by; the program has just taken a batch."""
        if self.is_settled:
            return
        before, now = self._before, self._clock()
        if before is not None and now - before.at < LEAST_SECONDS:
            return
        after = _count(pool, now)
        if before is None or before.data_workers != after.data_workers:
            self._before = after
            return
        if after.taken - before.taken < LEAST_BATCHES:
            return  # the slower the link, the longer a window has to be
        self._before = after
        window = Window(
            seconds=after.at - before.at,
            taken=after.taken - before.taken,
            waited_seconds=after.waited_seconds - before.waited_seconds,
            received_bytes=after.received_bytes - before.received_bytes,
            remote_batches=after.remote_batches - before.remote_batches,
            remote_seconds=after.remote_seconds - before.remote_seconds,
            data_workers=after.data_workers,
            cores=usable_cores(),
            workers=pool.local_workers,
        )
        self._choice = watch(self._choice, window)
        if self._choice.phase is Phase.ASKING:
            self._choice = self._asked(window, survey)
            self._before = None  # asking took its time
        if self._choice.why:
            logger.info("data workers: %s", self._choice.why)

    def _asked(self, window: Window, survey: Survey) -> CutChoice:
        done = CutChoice(Phase.DONE)
        try:
            survey()  # the first time libraries are loaded
            return choose(self._choice, window, survey())
        except (NotCutError, ProfileError) as error:
            logger.info("data workers make whole batches, though their link binds: %s", error)
        except Exception as error:  # noqa: BLE001 - the user's code: it raises where a batch is made
            logger.info("data workers make whole batches, a stage raised %r", error)
        return done


def _count(pool: WorkerPool, now: float) -> _Counted:
    counts, makers = pool.counts, pool.makers
    with makers.lock:
        links = [link for link in makers.links.values() if not link.local]
        behind = 0 if any(link.shares_memory for link in links) else len(links)
        return _Counted(
            now,
            counts.taken + counts.made_here,
            counts.waited_seconds,
            counts.received_bytes,
            counts.remote.batches,
            counts.remote.seconds,
            behind,
        )
