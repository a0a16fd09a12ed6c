"""What members of a session measure between steps: which machines have become slow or fail (pure).

A round is what the members of one group measure after one step; the newest `ROUNDS` are judged
together, by the rules of the check before the training (`check`). They are noisier than that, and
minutes apart: a pod's other processes go on meanwhile, and all machines may be slower at one time
than at another. So speeds are compared with those of the same round alone, and of a machine nothing
is said before `LEAST_ROUNDS`.

Guarantees: nobody is replaced for it, since a job that trains would lose more; a good machine is
spoken of when it was not known, or was bad; what is remembered is bounded.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.base.enums import Role
from penstock.job.identities import replica_name
from penstock.trainer.nodecheck.check import Check, Finding, Measurement, Verdict, findings
from penstock.trainer.nodecheck.messages import RoundMeasured, StepMeasured
from penstock.trainer.nodecheck.outliers import Speed, usual

ROUNDS: Final = 5
LEAST_ROUNDS: Final = 3
LATE_SECONDS: Final = 15.0
"""A round whose members have not all been heard after so long is judged without them."""
MOST_MEMBERS: Final = 4096
_BAD: Final = (Verdict.SLOW, Verdict.FAILING)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of one member's machine."""

    measured: StepMeasured
    finding: Finding

    @property
    def first(self) -> RoundMeasured:
        """Its speeds, as a check before the training has them."""
        own = self.measured
        return RoundMeasured(
            number=0, compute=own.compute, memory=own.memory, link=own.link, failed=own.failed
        )

    @property
    def is_bad(self) -> bool:
        """Whether its machine is slow, or its link fails."""
        return self.finding.verdict in _BAD


@dataclass(slots=True)
class _Round:
    key: tuple[int, int]
    began: float
    said: dict[str, StepMeasured] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.said) >= max(one.members for one in self.said.values())


class TrainingCheck:
    """Of one job."""

    def __init__(self) -> None:
        self._open: _Round | None = None
        self._over = (-1, -1)
        self._done: deque[dict[str, StepMeasured]] = deque(maxlen=ROUNDS)
        self._verdicts: dict[str, Verdict] = {}

    def hear(self, said: StepMeasured, now: float) -> list[Checked]:
        """Take in what a member measured; what is new of machines, if its round is over.

        Args:
            said: by the member.
            now: seconds of a clock that does not go back.
        """
        found: list[Checked] = []
        key = said.group, said.step
        if key <= self._over:
            return []
        if self._open is not None and self._open.key != key:
            if key < self._open.key:
                return []
            found = self._close(self._open)
        if self._open is None:
            self._open = _Round(key, now)
        if len(self._open.said) < MOST_MEMBERS:
            self._open.said[_name(said)] = said
        if self._open.complete or now - self._open.began >= LATE_SECONDS:
            found += self._close(self._open)
        return found

    def _close(self, over: _Round) -> list[Checked]:
        self._open, self._over = None, over.key
        self._done.append(over.said)
        seen = Counter(name for said in self._done for name in said)
        hardware = {name: one.hardware for said in self._done for name, one in said.items()}
        rounds = tuple(_compared(said) for said in self._done)
        judged = findings(Check(hardware, rounds))
        self._verdicts = {name: self._verdicts[name] for name in hardware if name in self._verdicts}
        found = []
        for name, measured in over.said.items():
            finding = judged[name]
            if seen[name] < LEAST_ROUNDS or finding.verdict is Verdict.UNKNOWN:
                continue
            new = self._verdicts.get(name) is not finding.verdict
            self._verdicts[name] = finding.verdict
            checked = Checked(measured, finding)
            if new or checked.is_bad:
                found.append(checked)
        return found


def _name(said: StepMeasured) -> str:
    return replica_name(Role.WORKER, said.rank, said.incarnation)


def _compared(said: Mapping[str, StepMeasured]) -> tuple[Measurement, ...]:
    """What the members of one round measured, in parts of what is usual of their kind in it."""
    reached: dict[tuple[str, Speed], list[float]] = defaultdict(list)
    for one in said.values():
        for what, speed in _speeds(one).items():
            reached[one.hardware, what].append(speed)
    known = {key: usual(speeds).speed for key, speeds in reached.items()}
    return tuple(
        Measurement(
            name,
            one.partner if one.partner in said else "",  # of one that was not heard
            {
                what: speed / known[one.hardware, what]
                for what, speed in _speeds(one).items()
                if known[one.hardware, what] > 0
            },
            one.failed and one.partner in said,
        )
        for name, one in said.items()
    )


def _speeds(one: StepMeasured) -> dict[Speed, float]:
    measured = (Speed.COMPUTE, one.compute), (Speed.MEMORY, one.memory), (Speed.LINK, one.link)
    return {what: speed for what, speed in measured if speed is not None}
