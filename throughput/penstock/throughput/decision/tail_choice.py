"""Who makes the ends of samples that data workers have begun: the program, or its workers; pure.

Where the program makes them it trains not meanwhile. Its loader's workers can make them as well,
which costs a batch another way between two processes. So the program begins; where it spends a good
part of its time with them, and has workers, these are tried, and what that brings is compared with
what the arithmetic promises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock.throughput.decision.cut_choice import LEAST_BATCHES, LEAST_SECONDS, judge_promise
from penstock.throughput.decision.offload import LEAST_GAIN

BINDS: Final = 0.2
"""Share of the program's time that the ends of samples have to take."""


@dataclass(frozen=True, slots=True)
class TailWindow:
    """Some seconds of a program.

    Attributes:
        seconds: how many.
        taken: batches that it took.
        tail_seconds: that it spent with the ends of samples.
        workers: processes of its loader.
    """

    seconds: float
    taken: int
    tail_seconds: float
    workers: int

    @property
    def counts(self) -> bool:
        """Whether it is long enough to say something."""
        return self.seconds >= LEAST_SECONDS and self.taken >= LEAST_BATCHES


class TailPhase(Enum):
    """Of a choice."""

    WATCHING = "the program makes them"
    CHANGING = "its workers are to, and older batches still come"
    TRYING = "it is compared with its promise"
    DONE = "it is decided for good"


@dataclass(frozen=True, slots=True)
class TailChoice:
    """What is known, and who makes them.

    Attributes:
        in_workers: the workers do.
        before: batches a second where the program makes them.
        promised: with the workers.
        why: for people; "": nothing new.
    """

    phase: TailPhase = TailPhase.WATCHING
    in_workers: bool = False
    before: float = 0.0
    promised: float = 0.0
    why: str = ""


def watch_tail(choice: TailChoice, window: TailWindow) -> TailChoice:
    """After a window."""
    if not window.counts:
        return replace(choice, why="")
    rate = window.taken / window.seconds
    if choice.phase is TailPhase.WATCHING and window.workers:
        each = window.tail_seconds / window.taken
        promised = _with_workers(1 / rate, each, window.workers)
        binds = window.tail_seconds >= BINDS * window.seconds
        if binds and promised >= (1 + LEAST_GAIN) * rate:
            why = (
                f"the ends of samples take {each:.3g} s a batch of the program's time: the workers "
                f"of its loader make them, for {promised:.4g} batches/s in place of {rate:.4g}"
            )
            return TailChoice(TailPhase.CHANGING, True, rate, promised, why)
    if choice.phase is TailPhase.CHANGING:
        return replace(choice, phase=TailPhase.TRYING, why="")
    if choice.phase is TailPhase.TRYING:
        kept, said = judge_promise(rate, choice.before, choice.promised)
        if not kept:
            why = f"the program makes the ends of samples again: {said}"
            return replace(choice, phase=TailPhase.DONE, in_workers=False, why=why)
        return replace(choice, phase=TailPhase.DONE, why=f"kept: {said}")
    return replace(choice, why="")


def _with_workers(period: float, tail: float, workers: int) -> float:
    """Batches a second where the program goes on without the tail, and so many others make it."""
    return 1 / max(period - tail, tail / workers, 1e-9)
