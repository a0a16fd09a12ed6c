"""In front of which stage data workers are to end, for a loader whose link binds; pure.

Whole batches are what data workers make until the training waits while they idle: then it is the
link between them that holds it up, and what came over it meanwhile is what it carries. With what
each stage costs, and how large a sample is after it, `decide` says whether another cut brings more.
What it promises is looked at: where half of the gain is missing it is taken back, for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock.throughput.decision.offload import LEAST_GAIN, best_share, decide
from penstock.throughput.limits.capacity import Placement, bounds
from penstock.throughput.limits.cut import READ_LOCAL, carried_out
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

LEAST_SECONDS: Final = 4.0
LEAST_BATCHES: Final = 12
"""Of a window; what was asked for before a change is the window before it."""
WAITS: Final = 0.2
"""Share of the time that a training has to wait for a link to be what binds."""
IDLE: Final = 0.3
"""And that its data workers have to be idle for."""
BLOCKED: Final = 0.5
"""Share of the time of data workers for which they are blocked where it is reading that binds."""
LEAST_FAILED: Final = 3
"""Batches that data workers could not make, where they made none."""
_NEVER: Final = 1e6
"""Seconds in which nobody reads a file that is not there."""
KEPT: Final = 0.5
"""Of the promised gain; with less, a change is taken back."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some seconds of a training process.

    Attributes:
        seconds: how many.
        taken: batches that it took.
        waited_seconds: for batches, the ends of samples that it makes itself included.
        received_bytes: over the network.
        remote_batches, remote_seconds: that data workers made, and in how long.
        data_workers: behind a network.
        cores: of the training process's pod.
        workers: local ones.
        remote_blocked_seconds: of ``remote_seconds``, those that were neither on a core nor waiting
            for one: reading, mostly.
        failed: batches that data workers could not make.
    """

    seconds: float
    taken: int
    waited_seconds: float
    received_bytes: float
    remote_batches: int
    remote_seconds: float
    data_workers: int
    cores: float
    workers: int
    remote_blocked_seconds: float = 0.0
    failed: int = 0

    @property
    def reading_binds(self) -> bool:
        """Whether the training waits for data workers that wait for their files, or lack them."""
        if not self.data_workers or self.waited_seconds < WAITS * self.seconds:
            return False
        if not self.remote_batches:
            return self.failed >= LEAST_FAILED
        return self.remote_blocked_seconds >= BLOCKED * self.remote_seconds > 0

    @property
    def link_binds(self) -> bool:
        """Whether the training waits for batches that data workers have time to make."""
        if not self.data_workers or self.received_bytes <= 0:
            return False
        if 2 * self.remote_batches < self.taken:
            return False
        idle = 1 - self.remote_seconds / (self.data_workers * self.seconds)
        return self.waited_seconds >= WAITS * self.seconds and idle >= IDLE


class Phase(Enum):
    """Of a choice."""

    WATCHING = "whole batches, and the link does not bind"
    ASKING = "the stages are to be measured"
    ASKING_READING = "what reading costs here is to be measured"
    CHANGING = "a cut was chosen, and older batches still come"
    TRYING = "it is compared with its promise"
    DONE = "it is kept, or whole batches are"


@dataclass(frozen=True, slots=True)
class CutChoice:
    """What is known, and what is to be done.

    Attributes:
        cut: the stage in front of which data workers end; "": they make whole batches;
            `READ_LOCAL`: of files that they have from the training process.
        before: batches a second with whole ones.
        promised: with the cut.
        reading_asked: what reading costs was measured once: it is not asked again.
        why: for people; "": nothing new.
    """

    phase: Phase = Phase.WATCHING
    cut: str = ""
    before: float = 0.0
    promised: float = 0.0
    why: str = ""
    reading_asked: bool = False


def judge_promise(rate: float, before: float, promised: float) -> tuple[bool, str]:
    """Whether a change brought `KEPT` of what it promised, and the figures; rates of one unit."""
    gained = (rate - before) / (promised - before)
    return gained >= KEPT, f"{rate:.4g} batches/s, {promised:.4g} promised, {before:.4g} before"


def watch(choice: CutChoice, window: Window) -> CutChoice:
    """After a window."""
    if window.seconds < LEAST_SECONDS or window.taken < LEAST_BATCHES:
        return replace(choice, why="")
    rate = window.taken / window.seconds
    if choice.phase is Phase.WATCHING and window.link_binds:
        return replace(choice, phase=Phase.ASKING, before=rate, why="")
    if choice.phase is Phase.WATCHING and window.reading_binds and not choice.reading_asked:
        phase = Phase.ASKING_READING
        return replace(choice, phase=phase, before=rate, why="", reading_asked=True)
    if choice.phase is Phase.CHANGING:
        return replace(choice, phase=Phase.TRYING, why="")
    if choice.phase is Phase.TRYING:
        kept, said = judge_promise(rate, choice.before, choice.promised)
        if not kept:
            return replace(choice, phase=Phase.DONE, cut="", why=f"whole batches again: {said}")
        return replace(choice, phase=Phase.DONE, why=f"kept: {said}")
    return replace(choice, why="")


def choose(choice: CutChoice, window: Window, stages: Sequence[StageCost]) -> CutChoice:
    """With what the stages cost a batch, the last one collating, in the window where it binds.

    What a whole batch is over the network, coded as it may be, is what came of it in the window.
    """
    wire = window.received_bytes / max(1, window.remote_batches)
    known = [*stages[:-1], replace(stages[-1], bytes_out=wire)]
    waited = min(window.waited_seconds, 0.999 * window.seconds)
    rate = window.taken / window.seconds
    resources = Resources(
        cores=max(0.1, window.cores),
        workers=window.workers,
        data_workers=window.data_workers,
        network_bytes_per_second=max(1.0, window.received_bytes / window.seconds),
    )
    profile = Profile(
        program="the job",
        batch_size=1,
        stages=tuple(known),
        step=Measured.given((window.seconds - waited) / window.taken),
        rate=Measured.given(rate),
        stalled=waited / window.seconds,
        resources=replace(resources, data_workers=0),
    )
    best = decide(profile, resources, least_gain=0.0).chosen
    promised = min(best.rate, best.rate * rate / _rate_of_whole(profile, resources))
    cut = best.placement.cut
    if not cut.moves or cut.last == len(known) or promised < (1 + LEAST_GAIN) * rate:
        return replace(choice, phase=Phase.DONE, why="")
    name = known[cut.last].name
    why = f"the link binds at {rate:.4g} batches/s: {name} and what follows run here, for "
    return CutChoice(Phase.CHANGING, name, rate, promised, f"{why}{promised:.4g}")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the training process measured of making one batch itself.

    Attributes:
        blocked_seconds: that it was neither on a core nor waiting for one.
        cpu_seconds: that it was on one.
        read_bytes: of the files.
        batch_bytes: of the batch.
    """

    blocked_seconds: float
    cpu_seconds: float
    read_bytes: float
    batch_bytes: float


def choose_reading(choice: CutChoice, window: Window, reading: Reading) -> CutChoice:
    """Whether the training process is to read for data workers, in the window where they wait.

    How much their link carries is not known before it has to; that it does not is seen afterwards.
    """
    stages = (
        StageCost("reading", "fetch", 0.0, reading.blocked_seconds, max(1.0, reading.read_bytes)),
        StageCost("making", "transform", reading.cpu_seconds, 0.0, max(1.0, reading.batch_bytes)),
    )
    made = window.remote_batches
    there = window.remote_blocked_seconds / made if made else _NEVER
    waited = min(window.waited_seconds, 0.999 * window.seconds)
    rate = window.taken / window.seconds
    resources = Resources(
        cores=max(0.1, window.cores),
        workers=window.workers,
        data_workers=window.data_workers,
        data_worker_reading_seconds=there,
    )
    profile = Profile(
        program="the job",
        batch_size=1,
        stages=stages,
        step=Measured.given((window.seconds - waited) / window.taken),
        rate=Measured.given(rate),
        stalled=waited / window.seconds,
        resources=replace(resources, data_workers=0, data_worker_reading_seconds=None),
    )
    cuts = [cut for cut in carried_out(stages, reads=True) if cut.first]
    best = decide(profile, resources, cuts=cuts, least_gain=0.0).chosen
    now = Placement()
    if made:
        whole = carried_out(stages)[0]
        now = Placement(whole, best_share(profile, resources, whole))
    model = min(bounds(profile, resources, now).values())
    promised = min(best.rate, best.rate * rate / model)
    if not best.placement.cut.moves or promised < (1 + LEAST_GAIN) * rate:
        return replace(choice, phase=Phase.WATCHING, why="")
    waits = f"wait {there:.3g} s for the files of a batch" if made else "lack the files"
    why = f"data workers {waits}, which take {reading.blocked_seconds:.3g} s here: they are read "
    why += f"here, for {promised:.4g} batches/s in place of {rate:.4g}"
    return CutChoice(Phase.CHANGING, READ_LOCAL, rate, promised, why)


def _rate_of_whole(profile: Profile, resources: Resources) -> float:
    """What the model has of what was seen."""
    whole = carried_out(profile.stages)[:1]
    return decide(profile, resources, cuts=whole, least_gain=0.0).chosen.rate
