"""Whether one loader's data workers are to end in front of a stage: as its process sees the link.

Looks once in some seconds at what the process counts, and leaves the decision to
`penstock.throughput.decision.cut_choice`. Only data workers behind a network count: with those on
the same machine nothing lies between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.data.consuming.tail_chooser import TailChooser
from penstock.data.cores import usable_cores
from penstock.data.errors import NotCutError
from penstock.data.queue.worker_pool import WorkerPool
from penstock.throughput.decision.cut_choice import (
    LEAST_BATCHES,
    LEAST_SECONDS,
    CutChoice,
    Phase,
    Reading,
    Window,
    choose,
    choose_reading,
    watch,
)
from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.stage import StageCost

logger = logging.getLogger(__name__)

Survey = Callable[[], Sequence[StageCost]]
"""What the stages cost; raises NotCutError, or what the user's code raises."""


SurveyReading = Callable[[], tuple[Reading, tuple[str, ...]]]
"""What reading costs here, and the folders of the files; raises as `Survey` does."""


@dataclass(frozen=True, slots=True)
class _Counted:
    at: float
    taken: int
    waited_seconds: float
    received_bytes: int
    remote_batches: int
    remote_seconds: float
    remote_blocked_seconds: float
    failed: int
    data_workers: int


class CutChooser:
    """See the module's docstring; of one loader, from epoch to epoch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: of seconds."""
        self._clock = clock
        self._choice = CutChoice()
        self._before: _Counted | None = None
        self.tail = TailChooser()
        self.roots: tuple[str, ...] = ()
        """Folders that are read here, where that was looked at."""

    @property
    def cut(self) -> str:
        """As `CutChoice.cut`."""
        return self._choice.cut

    @property
    def is_settled(self) -> bool:
        """Whether it is decided for good."""
        return self._choice.phase is Phase.DONE

    def begin(self) -> None:
        """An epoch begins: what was between two is of no window."""
        self._before = None
        self.tail.begin()

    def look(
        self,
        pool: WorkerPool,
        survey: Survey,
        survey_reading: SurveyReading | None = None,
        failed: int = 0,
    ) -> None:
        """Decide anew where some seconds have gone by; the program has just taken a batch.

        ``failed``: batches of this epoch that somebody could not make.
        """
        if self.is_settled:
            return
        before, now = self._before, self._clock()
        if before is not None and now - before.at < LEAST_SECONDS:
            return
        after = _count(pool, now, failed)
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
            remote_blocked_seconds=after.remote_blocked_seconds - before.remote_blocked_seconds,
            failed=max(0, after.failed - before.failed),
        )
        self._choice = watch(self._choice, window)
        if self._choice.phase is Phase.ASKING:
            self._choice = self._asked(lambda: choose(self._choice, window, _second(survey)))
            self._before = None  # asking took its time
        elif self._choice.phase is Phase.ASKING_READING:
            self._choice = self._asked(lambda: self._reading(window, survey_reading))
            self._before = None
        if self._choice.why:
            logger.info("data workers: %s", self._choice.why)

    def _reading(self, window: Window, survey: SurveyReading | None) -> CutChoice:
        if survey is None:
            raise NotCutError("nothing is known of its files")
        survey()  # the first time libraries are loaded
        reading, self.roots = survey()
        return choose_reading(self._choice, window, reading)

    def _asked(self, decided: Callable[[], CutChoice]) -> CutChoice:
        """What is decided; where that cannot be said, of reading only that is settled."""
        done = CutChoice(Phase.DONE)
        if self._choice.phase is Phase.ASKING_READING:
            done = replace(self._choice, phase=Phase.WATCHING)
        try:
            return decided()
        except (NotCutError, ProfileError) as error:
            logger.info("data workers make whole batches, though they are waited for: %s", error)
        except Exception as error:  # noqa: BLE001 - the user's code: it raises where a batch is made
            logger.info("data workers make whole batches, a stage raised %r", error)
        return done


def _second(survey: Survey) -> Sequence[StageCost]:
    survey()  # the first time libraries are loaded
    return survey()


def _count(pool: WorkerPool, now: float, failed: int) -> _Counted:
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
            counts.remote.seconds - counts.remote.cpu_seconds - counts.remote.queued_seconds,
            failed,
            behind,
        )
