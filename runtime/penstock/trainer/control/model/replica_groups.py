"""Replica groups of several pods: which pods belong together, and the worlds that they form.

Replica group ``k`` is the workers ``k * pods`` to ``k * pods + pods - 1``. Their agents launch the
processes of one world, for which each replica group has a rendezvous of its own; it forms a world
of all its pods or none. What the processes do together is a session of one member, whose rank is
that of the first pod. When a world has broken, whoever ended it, its session is lost with it: the
model needs all of them. The pods that are left end their processes and wait for the missing one.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.job.protocol import Phase, SessionReport
from penstock.trainer.control.model.rendezvous import Rendezvous, Timing

_NO_SLOTS = 1


class ReplicaGroups:
    """Those of one job; none of several pods before an agent of one has reported."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.pods = 1
        """Of each replica group."""
        self.by_number: dict[int, Rendezvous] = {}
        self._expected: frozenset[int] | None = None

    @property
    def revision(self) -> int:
        """Moves on with the orders of any pod."""
        return sum(one.revision for one in self.by_number.values())

    # ------------------------------------------------------------------ observations

    def fits(self, pods: int) -> bool:
        """Whether replica groups of so many pods may be in this job."""
        return not self.by_number or pods == self.pods

    def record(self, report: SessionReport, now: float) -> bool:
        """Take in an agent's report; False when a newer one has its rank."""
        self.pods = report.replica_pods
        return self._find(report.member.rank).record(report, now)

    def expect(self, ranks: Iterable[int] | None) -> None:
        """The workers that have a pod."""
        self._expected = None if ranks is None else frozenset(ranks)
        for number, one in self.by_number.items():
            one.expect(self._expected_of(number))

    def mark_ended(self, rank: int, incarnation: int) -> None:
        """A pod's processes are no more."""
        if (one := self.by_number.get(rank // self.pods)) is not None:
            one.mark_ended(rank, incarnation)

    # ------------------------------------------------------------------ decisions

    def decide(self, now: float) -> list[int]:
        """Look at everything anew; the ranks of the sessions that are lost by it."""
        lost = []
        for number, one in self.by_number.items():
            before = one.group if one.training else None
            one.decide(now)
            if before is not None and not (one.training and one.group == before):
                lost.append(number * self.pods)
        return lost

    # ------------------------------------------------------------------ questions

    def of(self, rank: int) -> Rendezvous | None:
        """That of a worker's replica group; None: nobody of it has reported."""
        return self.by_number.get(rank // self.pods)

    def is_broken(self, rank: int) -> bool:
        """Whether a worker's replica group has no world, or no longer: nor has it a session."""
        one = self.of(rank)
        return one is not None and not one.training

    def members_of(self, ranks: frozenset[int] | None) -> frozenset[int] | None:
        """The sessions' ranks where these workers have a pod: of whole replica groups."""
        if ranks is None or self.pods == 1:
            return ranks
        first = {rank - rank % self.pods for rank in ranks}
        return frozenset(rank for rank in first if ranks.issuperset(self._ranks(rank // self.pods)))

    def least_members(self, workers: int) -> int:
        """How many sessions that many workers are, at least one."""
        return max(1, workers // self.pods)

    def speaks_for(self, rank: int, incarnation: int) -> bool:
        """Whether a worker trains in a session that another pod has asked for."""
        one = self.of(rank)
        if one is None or rank % self.pods == 0:
            return False
        known = one.members.by_rank.get(rank)
        return (
            known is not None
            and known.id.incarnation >= incarnation
            and known.report.phase is not Phase.READY
        )

    # ------------------------------------------------------------------ inside

    def _ranks(self, number: int) -> range:
        return range(number * self.pods, (number + 1) * self.pods)

    def _expected_of(self, number: int) -> frozenset[int] | None:
        own = frozenset(self._ranks(number))
        return None if self._expected is None else self._expected & own

    def _find(self, rank: int) -> Rendezvous:
        number = rank // self.pods
        if number not in self.by_number:
            one = Rendezvous(_NO_SLOTS, self._timing)
            one.min_workers, one.whole = self.pods, True
            one.expect(self._expected_of(number))
            self.by_number[number] = one
        return self.by_number[number]
