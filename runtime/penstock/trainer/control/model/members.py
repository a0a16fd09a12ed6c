"""The newest report of each rank of a group's job, and how far the group has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.job.protocol import Group, MemberId, Phase, SessionReport

MAX_SUPERSEDED: Final = 4096


@dataclass
class Member:
    """The newest report of one rank."""

    report: SessionReport
    seen: float
    ready_since: float | None = None
    failed_since: float | None = None
    gone: bool = False
    suspect: bool = False

    @property
    def id(self) -> MemberId:
        """Which process it is."""
        return self.report.member

    @property
    def finished(self) -> bool:
        """Whether it has seen all data."""
        return self.report.phase in (Phase.FINISHED, Phase.CLOSED)


class MemberRegistry:
    """The members of one job by rank: of several processes of a rank the newest one."""

    def __init__(self) -> None:
        self.by_rank: dict[int, Member] = {}
        """Those that have gone, too."""
        self.launched = False
        """Whether the members are agents, each for the processes that it starts itself."""
        self._superseded: dict[MemberId, None] = {}

    def record(self, report: SessionReport, now: float) -> bool | None:
        """Take in a report: whether its phase is news; None when a newer process has the rank."""
        rank = report.member.rank
        known = self.by_rank.get(rank)
        if report.member in self._superseded:
            return None
        if known is not None and known.id != report.member:
            if report.member.incarnation < known.id.incarnation:
                return None
            self._supersede(known.id)
            known = None
        news = known is None or known.report.phase is not report.phase
        member = known or Member(report, now)
        self.by_rank[rank] = member
        ready = report.phase is Phase.READY
        if ready and (member.ready_since is None or member.report.phase is not Phase.READY):
            member.ready_since = now
        if not ready:
            member.ready_since = None
        failed = report.phase is Phase.FAILED
        member.failed_since = (member.failed_since or now) if failed else None
        self.launched = report.launched
        member.report, member.seen, member.gone, member.suspect = report, now, False, False
        self._suspect(report)
        return news

    def mark_ended(self, rank: int, incarnation: int) -> bool:
        """The process of a rank is no more; False if that is known, or a newer one has the rank."""
        member = self.by_rank.get(rank)
        if member is None or member.id.incarnation > incarnation or member.gone:
            return False
        member.gone = True
        return True

    def dismiss(self, rank: int) -> bool:
        """Hear the process of a rank no more; False: there is none, or it is through."""
        member = self.by_rank.get(rank)
        if member is None or member.finished:
            return False
        del self.by_rank[rank]
        self._supersede(member.id)
        return True

    def take_up(self, group: Group, report: SessionReport, now: float) -> None:
        """Count the members of a group, of which one reports, as if all had reported."""
        for other in group.members:
            if other.id.rank not in self.by_rank and other.id != report.member:
                placeholder = report.model_copy(
                    update={"member": other.id, "phase": Phase.TRAINING, "committed": None}
                )
                self.by_rank[other.id.rank] = Member(placeholder, now)

    def pass_over(self, gap: float, now: float) -> None:
        """Nobody could be heard for so long: that was no silence of theirs."""
        for member in self.by_rank.values():
            member.seen = min(now, member.seen + gap)
            if member.failed_since is not None:
                member.failed_since = min(now, member.failed_since + gap)

    # ------------------------------------------------------------------ questions

    @property
    def present(self) -> list[Member]:
        """All members that have not gone."""
        return [member for member in self.by_rank.values() if not member.gone]

    @property
    def any_closed(self) -> bool:
        """Whether any process, gone by now or not, came to the end of the data."""
        return any(m.report.phase is Phase.CLOSED for m in self.by_rank.values())

    def has_asked(self, rank: int, incarnation: int) -> bool:
        """Whether this process of a rank, or a later one, has ever reported a session."""
        member = self.by_rank.get(rank)
        return member is not None and member.id.incarnation >= incarnation

    def find(self, member: MemberId) -> Member | None:
        """What is known of this very process."""
        known = self.by_rank.get(member.rank)
        return known if known is not None and known.id == member else None

    def of(self, group: Group) -> list[Member | None]:
        """The newest report of each member of a group, in order."""
        newest = ((other.id, self.by_rank.get(other.id.rank)) for other in group.members)
        return [member if member and member.id == which else None for which, member in newest]

    def ready(self, now: float, silent: float) -> list[Member]:
        """Those who wait for a group and were heard of within ``silent`` seconds."""
        return [
            member
            for member in self.by_rank.values()
            if member.report.phase is Phase.READY
            and not member.gone
            and now - member.seen <= silent
        ]

    # ------------------------------------------------------------------ inside

    def _suspect(self, report: SessionReport) -> None:
        for lost in report.lost:
            other = self.by_rank.get(lost.rank)
            if other is not None and other.id == lost and other.report.phase is Phase.TRAINING:
                other.suspect = True

    def _supersede(self, member: MemberId) -> None:
        self._superseded[member] = None
        while len(self._superseded) > MAX_SUPERSEDED:
            del self._superseded[next(iter(self._superseded))]


@dataclass
class GroupProgress:
    """The newest step that a group has committed, and since when."""

    step: int = 0
    since: float = float("-inf")

    def begin(self, step: int, now: float) -> None:
        """A group begins there."""
        self.step, self.since = step, now

    def note(self, report: SessionReport, group: Group | None, now: float) -> None:
        """A member of the group may have come further."""
        if group is None or report.generation != group.number:
            return
        if report.idle_seconds is not None:
            self.since = max(self.since, now - report.idle_seconds)
        if report.committed is None:
            return
        if report.phase is Phase.TRAINING and report.committed > self.step:
            self.step, self.since = report.committed, now

    def pass_over(self, gap: float, now: float) -> None:
        """Nobody could be heard for so long: that was no standstill of the group's."""
        self.since = min(now, self.since + gap)
