"""Which processes of a job stand still, and since when; pure.

Every training process says when it took its last step (`TrainingProcess.idle`), unmodified programs
too, so that nothing of this depends on how a program trains. Usual is the longest pause that a
process had between two of its last steps: evaluations, checkpoints and compilations that came
before are part of it. A process that has paused for longer, by `GRACE_SECONDS` or a quarter, is
*suspected*; all agents are then asked for `LOOKS` looks at their processes' stacks, a second apart.
What they show decides:

- a process that was elsewhere in each look works, at an evaluation say: nothing is said, and it is
  looked at again after `AGAIN_SECONDS`; one that was in several places, and returned to some, may
  work or be in a loop that calls others: it is named only after `WORKS_SECONDS` more;
- those that only wait for other processes are not the cause, unless all of them do.

While a group is formed anew its members wait for that, and take no steps: they are not suspected,
nor is one named that only waits for others. Who stays in the group that is no more is, as ever: a
process that hangs there would keep the others from forming theirs.

What a process has waited for a core since its last step is no part of its pause: it could not have
taken a step then. So one that is starved is suspected later by as much, and who waits for it is not
named meanwhile. That holds until it has used more CPU than in any pause before, by
`MORE_CPU_SECONDS` or a quarter: a step that is as ever would be done by then.

Guarantees: nothing is said of a process before it was looked at; what was said is taken back with
the next step of the process, or with its end; nobody is asked for anything while training goes on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.trainer.standstill.stack import (
    Frame,
    Kind,
    Look,
    kind_of,
    movement,
    moves_on,
    place_of,
    wanders,
)

GRACE_SECONDS: Final = 5.0
"""Beyond the usual pause; a quarter of that where it is more."""
FIRST_SECONDS: Final = 120.0
"""The least patience with a process of which few steps are known: the first ones compile."""
KNOWN_STEPS: Final = 5
REMEMBERED: Final = 256
"""Pauses of a process that are remembered."""
MORE_CPU_SECONDS: Final = 1.0
"""Beyond what any pause has taken of a core: who has used as much lacks none."""
WORKS_SECONDS: Final = 120.0
"""By so much longer one may pause that may be at work."""
LOOKS: Final = 3
LOOK_SECONDS: Final = 1.2
"""Between two looks: agents report once a second."""
ANSWER_SECONDS: Final = 3.0
"""What agents have to answer one; of a process that is not shown by then nothing is known."""
AGAIN_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 4.0
"""An agent that has not been heard of for so long says nothing of its processes' steps."""
MAX_PROCESSES: Final = 16384
"""Of a job; more are not watched."""

Key = tuple[int, int]
"""Rank of the pod, and process id."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one process says: seconds since its last step, and of how many it is one.

    ``queued``: for how many of these it was ready to run, and had no core; ``used``: CPU seconds,
    as far as they are known.
    """

    idle: float
    world_size: int = 1
    queued: float = 0.0
    used: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """One process that stands still, and why the others wait for it.

    Attributes:
        rank: of its pod.
        pid: its number.
        idle: seconds since its last step, when it was looked at.
        usual: the longest pause that it had before.
        kind: what holds it up.
        place: where.
        at: when it was looked at last, by the clock of the detector's caller.
        moves: by what its machine says that it, or one that it may wait for, moves nevertheless;
            "": nothing does.
        world_size: processes in its group.
        queued: of the seconds without a step, those that are no part of its pause, as it had no
            core; 0 once it has used more CPU than a step takes.
    """

    rank: int
    pid: int
    idle: float
    usual: float
    kind: Kind
    place: Frame | None
    at: float = 0.0
    moves: str = ""
    world_size: int = 1
    queued: float = 0.0

    @property
    def key(self) -> Key:
        """Which process it is."""
        return self.rank, self.pid

    @property
    def paused(self) -> float:
        """For how long it had taken no step though it had a core, when it was looked at."""
        return self.idle - self.queued

    def __str__(self) -> str:
        where = f": {self.place}" if self.place is not None else ""
        starved = f", {self.queued:.0f} s of it without a core" if self.queued >= 1 else ""
        return (
            f"process {self.pid} has taken no step for {self.idle:.0f} s{starved} (at most "
            f"{self.usual:.0f} s before): {self.kind}{where}"
        )


@dataclass(slots=True)
class _Process:
    heard: Heard
    at: float
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    usual: float = 0.0
    """The longest of the pauses; kept, as it is asked for far more often than one is added."""
    most_used: float = 0.0
    """CPU seconds in any pause so far."""

    @property
    def last_step(self) -> float:
        return self.at - self.heard.idle

    @property
    def starved(self) -> float:
        """Of the seconds since its last step, those that excuse it: it had no core."""
        usual = self.most_used + max(MORE_CPU_SECONDS, self.most_used / 4)
        return self.heard.queued if self.heard.used <= usual else 0.0

    def paused(self, now: float) -> float:
        """For how long it has taken no step though it had a core."""
        return now - self.last_step - self.starved

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.usual = max(self.pauses)

    @property
    def patience(self) -> float:
        known = self.usual + max(GRACE_SECONDS, self.usual / 4)
        return known if len(self.pauses) >= KNOWN_STEPS else max(known, FIRST_SECONDS)


class Detector:
    """Of one job."""

    def __init__(self) -> None:
        self.look = 0
        """Which look is asked for, over all time; 0: none."""
        self.standing: tuple[Standing, ...] = ()
        """Who holds the job up now."""
        self._processes: dict[int, dict[int, _Process]] = {}  # by rank of the pod, and process id
        self._count = 0
        self._number = 0
        self._looks: list[dict[Key, Look]] = []
        self._began: list[float] = []
        self._not_before = float("-inf")
        self._waiting: frozenset[int] | None = None

    def hear(self, rank: int, processes: Mapping[int, Heard], now: float) -> None:
        """A pod's agent says of its processes, all of them; those it leaves out are gone."""
        known_of = self._processes.setdefault(rank, {})
        for pid in [pid for pid in known_of if pid not in processes]:
            del known_of[pid]
            self._count -= 1
            self._stepped((rank, pid))
        for pid, heard in processes.items():
            known = known_of.get(pid)
            if known is None:
                if self._count < MAX_PROCESSES:
                    known_of[pid] = _Process(heard, now)
                    self._count += 1
                continue
            before, used = known.last_step, known.heard.used
            known.heard, known.at = heard, now
            if (pause := known.last_step - before) > 0.5:  # clocks are read at different moments
                known.pause(pause)
                known.most_used = max(known.most_used, used)
                self._stepped((rank, pid))
        if not known_of:
            del self._processes[rank]

    def forget(self, rank: int) -> None:
        """A pod is gone."""
        self.hear(rank, {}, float("-inf"))

    def show(self, rank: int, look: int, shown: Mapping[int, Look]) -> None:
        """An agent answers a look; what comes late is of no use."""
        if look == self.look and self._looks:
            self._looks[-1].update(((rank, pid), one) for pid, one in shown.items())

    def advance(self, now: float, waiting: frozenset[int] | None = None) -> None:
        """Let time pass.

        Args:
            now: seconds of the caller's clock.
            waiting: ranks of pods whose processes wait for a group that is being formed; None:
                none is.
        """
        self._waiting = waiting
        self.standing = tuple(one for one in self.standing if not self._waits(one.rank))
        if self.look:
            asked = now - self._began[-1]
            missing = any(key not in self._looks[-1] for key in self._suspected(now))
            if asked < LOOK_SECONDS or (missing and asked < ANSWER_SECONDS):
                return
            if len(self._looks) < LOOKS:
                self._ask(now)
                return
            self._decide(now)
        elif not self.standing and now >= self._not_before and self._suspected(now):
            self._ask(now)

    def look_again(self, now: float) -> None:
        """Look anew at those that stand still; what is said of them stays until it is decided."""
        if self.standing and not self.look and self._suspected(now):
            self._ask(now)

    def _suspected(self, now: float) -> list[Key]:
        return [
            (rank, pid)
            for rank, processes in self._processes.items()
            if not self._waits(rank)
            for pid, one in processes.items()
            if one.paused(now) > one.patience and now - one.at <= SILENT_SECONDS
        ]

    def _starved(self, now: float) -> bool:
        """Whether one of those that have taken no step for too long had no core meanwhile."""
        return any(
            one.paused(now) <= one.patience < now - one.last_step
            for processes in self._processes.values()
            for one in processes.values()
        )

    def _ask(self, now: float) -> None:
        self._number += 1
        self.look = self._number
        self._looks.append({})
        self._began.append(now)

    def _decide(self, now: float) -> None:
        seconds = self._began[-1] - self._began[0]
        suspected = {key: self._processes[key[0]][key[1]] for key in self._suspected(now)}
        looks = {key: [one[key] for one in self._looks if key in one] for key in suspected}
        still = {
            key: each
            for key, each in looks.items()
            if not self._may_work(suspected[key], each, seconds, now)
        }
        kinds = {
            key: kind_of(each, seconds, suspected[key].heard.world_size)
            for key, each in still.items()
        }
        places = {key: place_of(each[-1].frames) if each else None for key, each in still.items()}
        causes = causes_of(kinds, places)
        starved = self._starved(now)
        may_wait = starved or len(still) < len(looks) or self._waiting is not None
        if may_wait and all(kinds[key] is Kind.COLLECTIVE for key in causes):
            causes = []  # they wait for one that works, or would if it had a core, or is gone
        self.standing = tuple(
            Standing(
                rank=key[0],
                pid=key[1],
                idle=now - suspected[key].last_step,
                usual=suspected[key].usual,
                kind=kinds[key],
                place=places[key],
                at=now,
                moves=movement(looks[key], seconds) or self._works_beside(key, seconds, now),
                world_size=suspected[key].heard.world_size,
                queued=suspected[key].starved,
            )
            for key in sorted(causes)
        )
        self._rest()
        if not self.standing:
            self._not_before = now + (GRACE_SECONDS if starved else AGAIN_SECONDS)

    def _may_work(
        self, process: _Process, looks: Sequence[Look], seconds: float, now: float
    ) -> bool:
        """Whether a process that was looked at is to be left alone for now."""
        if moves_on(looks):
            return True
        waits = kind_of(looks, seconds, process.heard.world_size) is Kind.COLLECTIVE
        early = process.paused(now) <= process.patience + WORKS_SECONDS
        return early and not waits and wanders(looks)

    def _works_beside(self, key: Key, seconds: float, now: float) -> str:
        """Whether another process of the same world does something else than wait in a collective.

        The one at hand may wait for it, and not the other way round.
        """
        world_size = self._processes[key[0]][key[1]].heard.world_size
        if world_size < 2:
            return ""
        for rank, processes in self._processes.items():
            for pid, other in processes.items() if not self._waits(rank) else ():
                if (rank, pid) == key or now - other.last_step < GRACE_SECONDS:
                    continue
                seen = [one[rank, pid] for one in self._looks if (rank, pid) in one]
                waits = kind_of(seen, seconds, world_size) is Kind.COLLECTIVE
                if moves_on(seen) or (not waits and (wanders(seen) or movement(seen, seconds))):
                    return f"process {pid} of worker-{rank} works, and it may wait for that"
        return ""

    def _waits(self, rank: int) -> bool:
        return self._waiting is not None and rank in self._waiting

    def _rest(self) -> None:
        self.look, self._looks, self._began = 0, [], []

    def _stepped(self, key: Key) -> None:
        self.standing = tuple(one for one in self.standing if (one.rank, one.pid) != key)


def causes_of(kinds: Mapping[Key, Kind], places: Mapping[Key, Frame | None]) -> Sequence[Key]:
    """Those that the others wait for; all of them, where none differs.

    Who waits for other processes is no cause if anybody does not. Where nobody is seen to wait
    (a device's own collectives are waited for by computing), most are in one place, and those that
    are elsewhere are the cause.
    """
    found = [key for key, kind in kinds.items() if kind is not Kind.COLLECTIVE]
    if not found:
        return list(kinds)
    if len(found) < len(kinds) or len(found) < 3:
        return found
    at = {key: (kinds[key], str(places[key])) for key in found}
    place, many = Counter(at.values()).most_common(1)[0]
    return (
        [key for key in found if at[key] != place] if len(found) / 2 < many < len(found) else found
    )
