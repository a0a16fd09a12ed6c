"""The profiling of one loader, as a state machine without clock or process.

    WARM_UP -> NORMAL -> (FILL -> DRAIN) x rounds -> RETAINED -> COLD -> DONE

A window that the loader has filled before the measuring begins would hide the stalls, so that the
first batches of each epoch are not counted. Then the program runs as it would alone. Then, some
times, delivery is withheld until every batch that is under way is ready (workers go on: what they
do now has no competition from the training), and those are delivered while the workers get no new
work: how fast the training takes them is G. The same batches come in the same order. In the end the
program runs as before, while its workers keep the memory that they free (`new_memory`), and while
the files that every other sample opens are dropped from memory before: what a miss costs a core is
seen only where samples are made.

FastFlow (PVLDB 16(5), section 5.1) replays a cached batch on a copy of the model for the same
figure; DS-Analyzer (PVLDB 14(5), section 4.2) has the program run on synthetic data. Here the
program trains on, at the price of one window's delay a round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from penstock.throughput.profiles.measured import Measured

NEAR: Final = 0.03
"""A figure whose interval is this share of it is known well enough."""


class Phase(StrEnum):
    """Of a session."""

    WARM_UP = "warm-up"
    NORMAL = "normal"
    FILL = "fill"
    DRAIN = "drain"
    RETAINED = "retained"
    COLD = "cold"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is measured.

    Attributes:
        least, most: batches of the program as it runs.
        rounds: of filling and draining, at most.
        fixed: exactly ``most`` and ``rounds``: the ranks of a group must do the same.
        retained: batches while workers keep their memory, beyond twice the window: those that were
            made before, and the first of each worker.
        cold: batches while files are dropped, beyond twice the window.
    """

    least: int = 20
    most: int = 60
    rounds: int = 4
    fixed: bool = False
    retained: int = 12
    cold: int = 12

    def __post_init__(self) -> None:
        """Hold the order."""
        if not 2 <= self.least <= self.most or min(self.rounds, self.retained, self.cold) < 0:
            raise ValueError(
                f"a session measures 2 batches or more, not {self.least} to {self.most}, and "
                f"{self.rounds} rounds"
            )


@dataclass(frozen=True, slots=True)
class Session:
    """Where it is.

    Attributes:
        window: batches that the loader has under way; 0: it makes them when asked.
        budget: how much is measured.
        phase: what the next batch belongs to.
        left: batches of the phase that are to come, where it has a number.
        round: of filling and draining, from 0.
        periods: seconds from one batch to the next, of the program as it runs.
        steps: seconds of the training for one batch while everything is ready.
    """

    window: int
    budget: Budget
    phase: Phase = Phase.WARM_UP
    left: int = 1
    round: int = 0
    periods: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the next batch is withheld until all are ready."""
        return self.phase is Phase.FILL

    @property
    def defers(self) -> bool:
        """Whether workers get no new work."""
        return self.phase is Phase.DRAIN


def begin(window: int, budget: Budget) -> Session:
    """The first epoch of a loader begins."""
    return Session(window, budget, left=warm_up(window))


def taken(session: Session, trained: float | None, waited: float) -> Session:
    """One more batch was delivered.

    Args:
        session: before.
        trained: seconds since the last one was delivered; None: it is an epoch's first.
        waited: seconds for which the program then waited.
    """
    match session.phase:
        case Phase.WARM_UP:
            if session.left > 1:
                return replace(session, left=session.left - 1)
            return replace(session, phase=Phase.NORMAL, left=0)
        case Phase.NORMAL:
            if trained is None:
                return session
            periods = (*session.periods, trained + waited)
            session = replace(session, periods=periods)
            return _after_normal(session) if _enough(session) else session
        case Phase.DRAIN:
            steps = session.steps if trained is None else (*session.steps, trained)
            session = replace(session, steps=steps, left=session.left - 1)
            return session if session.left > 0 else _after_drain(session)
        case Phase.RETAINED:
            session = replace(session, left=session.left - 1)
            return session if session.left > 0 else _after_retained(session)
        case Phase.COLD:
            session = replace(session, left=session.left - 1)
            return session if session.left > 0 else replace(session, phase=Phase.DONE, left=0)
        case _:
            return session


def filled(session: Session, ready: int | None) -> Session:
    """All batches that were under way are ready; the first of them ends no measured step.

    Args:
        session: before.
        ready: batches; None: some were not after a minute, and no program is held up so twice.
    """
    if session.phase is not Phase.FILL:
        return session
    if ready is None:
        return replace(session, phase=Phase.DONE, left=0)
    if ready < 2:  # the epoch is about to end
        return _after_drain(session)
    return replace(session, phase=Phase.DRAIN, left=ready)


def epoch_ended(session: Session) -> Session:
    """The next batch is another epoch's first: the window is empty again."""
    if session.phase is Phase.DONE:
        return session
    if session.phase is Phase.WARM_UP:
        return replace(session, left=warm_up(session.window))
    if session.phase is Phase.DRAIN:
        session = _after_drain(session)
    if session.phase in (Phase.DONE, Phase.FILL, Phase.RETAINED, Phase.COLD):
        return session
    return replace(session, phase=Phase.WARM_UP, left=warm_up(session.window))


def warm_up(window: int) -> int:
    """Batches at the begin of each epoch that are not counted."""
    return 2 * window + 2


def _enough(session: Session) -> bool:
    number, budget = len(session.periods), session.budget
    if number >= budget.most:
        return True
    if budget.fixed or number < budget.least:
        return False
    return Measured.mean_of(session.periods).relative_error <= NEAR


def _after_normal(session: Session) -> Session:
    if session.window and session.budget.rounds:
        return replace(session, phase=Phase.FILL)
    return _after_rounds(session)


def _after_drain(session: Session) -> Session:
    done = session.round + 1
    known = (
        not session.budget.fixed
        and done >= 2
        and len(session.steps) >= 4
        and Measured.mean_of(session.steps).relative_error <= NEAR
    )
    session = replace(session, phase=Phase.FILL, round=done, left=0)
    return _after_rounds(session) if known or done >= session.budget.rounds else session


def _after_rounds(session: Session) -> Session:
    if session.window and session.budget.retained:
        left = 2 * session.window + session.budget.retained
        return replace(session, phase=Phase.RETAINED, left=left)
    return _after_retained(session)


def _after_retained(session: Session) -> Session:
    if session.budget.cold:
        left = 2 * session.window + session.budget.cold
        return replace(session, phase=Phase.COLD, left=left)
    return replace(session, phase=Phase.DONE, left=0)
