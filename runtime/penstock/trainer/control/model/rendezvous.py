"""Who trains together: membership as a pure, level-triggered state machine.

Every training process reports its whole state again and again; `Rendezvous` remembers the last
report of each rank and decides, with the time as an argument, when a new group is formed. Because
the wanted ranks are known from the job's pods, nobody waits for a "last call":

- A newcomer that is ready is announced to the running group, which goes on training and leaves at a
  common step boundary. Only then is the new group formed.
- A group that lost a member is formed anew from the survivors as soon as each of them has reported
  that it left, or has been silent for too long.
- The new group begins where its most advanced member is. Its model is the history that counts.

A member may also be an agent, for all the processes that it launches as ranks of one world
(`SessionReport.launched`). It commits no steps and has no model to hand over; a new group means new
processes. So a member that is drained lets the others end theirs in good order, and of a group
whose processes fail it is found out first whether that was a peer's end:

- Processes that lose a peer fail as well, all at once. Their agents ask, and nobody is answered
  before every other member has been heard of since, or is known to be lost: then the failures were
  its doing. If nobody is lost, the member whose processes failed first is told to end by it.

A trainer that lost its memory adopts the group that its members report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.job.protocol import (
    Directive,
    Group,
    GroupMember,
    MemberId,
    Phase,
    Restore,
    SessionReport,
)
from penstock.trainer.control.model.launched_members import (
    are_through,
    culprit_of,
    leaves_in_order,
)
from penstock.trainer.control.model.load_balance import by_speed, improved
from penstock.trainer.control.model.members import GroupProgress, Member, MemberRegistry


@dataclass(frozen=True)
class Timing:
    """How patient the rendezvous is, in seconds."""

    settle: float = 1.0
    """How long a newcomer waits for others that are expected too (training goes on meanwhile)."""
    expected: float = 10.0
    """How long a first group waits for the ranks whose pods exist."""
    suspect: float = 1.0
    """The same for a member whose connection to another one ended."""
    silent: float = 3.0
    """A member that is needed now and has not reported for this long is left out."""
    lost: float = 10.0
    """A member of a running group whose steps do not advance either is lost after this long."""
    stuck: float = 20.0
    """How long a broken group waits for a member that reports but does not leave it."""
    launched_settle: float = 5.0
    """As `settle`, where a newcomer costs everybody a start of new processes."""
    launched_stuck: float = 45.0
    """As `stuck`, where processes are asked to end, and may save something first."""
    heard: float = 0.5
    """So long after processes failed, a report of another member says that it outlived them."""


class Rendezvous:
    """The membership of one job."""

    def __init__(self, slots_per_step: int, timing: Timing | None = None) -> None:
        self.slots_per_step = slots_per_step
        self.timing = timing or Timing()
        self.min_workers = 1
        self.whole = False  # whether those whose processes ended well are missed
        self.balance = True  # whether shares follow the members' speeds
        self.weights: dict[int, float] = {}  # of ranks that should get less than a full share
        self.skipped: tuple[tuple[int, int], ...] = ()  # slots in quarantine, for the next group
        self.expected: frozenset[int] | None = None
        self.recovering_until = float("-inf")
        self.group: Group | None = None
        self.revision = 1
        self.members = MemberRegistry()
        self._broken_since: float | None = None
        self._dissolving = False
        self._culprit: MemberId | None = None
        self._progress = GroupProgress()
        self._number = 0
        self._last_tick: float | None = None

    # ------------------------------------------------------------------ observations

    def record(self, report: SessionReport, now: float) -> bool:
        """Take in a report; False when a newer process has the rank."""
        news = self.members.record(report, now)
        if news is None:
            return False
        self.revision += news
        self._number = max(self._number, report.generation)
        self._adopt(report, now)
        self._progress.note(report, self.group, now)
        return True

    def mark_ended(self, rank: int, incarnation: int) -> None:
        """An agent, or a pod's status, says that the process of a rank is no more."""
        self.revision += self.members.mark_ended(rank, incarnation)

    def lose(self, rank: int) -> None:
        """The process of a rank is lost, and whatever it may still say counts no more."""
        self.revision += self.members.dismiss(rank)

    def expect(self, ranks: Iterable[int] | None) -> None:
        """The ranks that should train: whose pods exist and are not being deleted."""
        self.expected = None if ranks is None else frozenset(ranks)

    def dissolve(self) -> None:
        """End the group in good order: its members leave it, and form another one."""
        if self.group is not None and not self._dissolving:
            self._dissolving = True
            self.revision += 1

    def tick(self, now: float) -> None:
        """Let time pass. A long gap was our own standstill, which must not look like silence."""
        if self._last_tick is not None and (gap := now - self._last_tick) > 1.0:
            self.members.pass_over(gap, now)
            self._progress.pass_over(gap, now)
            if self._broken_since is not None:
                self._broken_since = min(now, self._broken_since + gap)
        self._last_tick = now

    # ------------------------------------------------------------------ decision

    def decide(self, now: float) -> Group | None:
        """Look at everything anew; the group that was formed now, if any."""
        self.tick(now)
        if self.group is not None and self._broken_since is None:
            self._watch_group(self.group, now)
        if self.group is None or self._broken_since is not None:
            return self._form(now)
        return None

    def directive(self, member: MemberId) -> tuple[Directive, Group | None]:
        """What a member is to do now."""
        known = self.members.find(member)
        if known is None:
            return Directive.REFUSED, None
        group = self.group
        report = known.report
        if report.phase is Phase.FAILED:
            return self._verdict(known), group
        if report.phase not in (Phase.READY, Phase.TRAINING):
            return Directive.WAIT, None
        inside = group is not None and group.index_of(member) is not None
        if report.phase is Phase.READY:
            if group and inside and report.generation < group.number and not self._broken_since:
                return Directive.JOIN, group
            return (Directive.FINISH if self.launched_to_end else Directive.WAIT), None
        if group is None or not inside or report.generation != group.number or self._broken_since:
            return Directive.ABANDON, None
        return (Directive.REGROUP if self._dissolving else Directive.TRAIN), group

    def waiting_message(self, now: float) -> str:
        """Why no group is formed, for people; empty when there is nothing to wait for."""
        ready = self.members.ready(now, self.timing.silent)
        if self.group is not None and self._broken_since is None:
            return ""
        if _too_few(self, ready):
            return f"waiting for workers: {len(ready)} of at least {self.min_workers} are ready"
        return f"forming a group of {len(ready)}"

    def find_hung(self, now: float, patience: float) -> dict[int, float]:
        """Members that hold up the group: since when (in seconds) its steps have not advanced.

        Of a broken group they are those that report, and do not leave it.
        """
        standstill = now - self._progress.since
        if self.group is None or self.members.launched or standstill < patience:
            return {}
        return {
            member.id.rank: standstill
            for member in self.group_members
            if member is not None
            and member.report.phase is Phase.TRAINING
            and (
                member.report.computed <= self._progress.step
                if self._broken_since is None
                else not member.gone and now - member.seen <= self.timing.silent
            )
        }

    @property
    def training(self) -> bool:
        """Whether a group is formed and whole."""
        return self.group is not None and self._broken_since is None

    @property
    def launched_to_end(self) -> bool:
        """Whether all processes of a launched group have ended well."""
        return self.members.launched and are_through(self.group_members, self.expected or ())

    @property
    def group_members(self) -> list[Member | None]:
        """The newest report of each member of the group, in order."""
        return self.members.of(self.group) if self.group is not None else []

    def continue_from(self, number: int) -> None:
        """Number groups above one that existed before this trainer."""
        self._number = max(self._number, number)

    # ------------------------------------------------------------------ inside

    def _adopt(self, report: SessionReport, now: float) -> None:
        """Take up a newer group than ours: then we are the ones who forgot."""
        theirs = report.group
        if theirs is None or (self.group is not None and theirs.number <= self.group.number):
            return
        if theirs.number != report.generation:
            return
        self.group = theirs
        self._number = max(self._number, theirs.number)
        self._broken_since = None
        self._dissolving = False
        self._culprit = None
        self._progress.begin(theirs.start_step, now)
        self.members.take_up(theirs, report, now)  # gives each of them the time to report to us

    def _watch_group(self, group: Group, now: float) -> None:
        unfinished = [m for m in self.group_members if m is None or not m.finished]
        if not unfinished:
            return  # the end of the job
        present = [m for m in unfinished if m is not None]
        failing = any(m.failed_since is not None for m in present)
        standstill = now - self._progress.since
        allowed = [_allowed_silence(m, standstill, self.timing, failing=failing) for m in present]
        lost = [m for m, most in zip(present, allowed, strict=True) if now - m.seen > most]
        for member in lost:
            member.suspect = member.suspect or failing
        gone = any(_has_left(m, group) and not leaves_in_order(m) for m in present)
        if lost or gone or len(present) < len(unfinished):
            self._broken_since = now
            self.revision += 1
            return
        if failing and self._culprit is None:
            self._culprit = culprit_of(present, self.timing.heard)
            self.revision += self._culprit is not None
        leaving = any(map(leaves_in_order, present))
        if not self._dissolving and (leaving or _newcomers(self, group, now)):
            self._dissolving = True
            self.revision += 1

    def _verdict(self, member: Member) -> Directive:
        """What an agent is to make of it that its processes have failed."""
        group = self.group
        inside = group is not None and group.index_of(member.id) is not None
        current = inside and group is not None and member.report.generation == group.number
        if not current or self._broken_since is not None or self._dissolving:
            return Directive.ABANDON
        return Directive.END if self._culprit == member.id else Directive.WAIT

    def _form(self, now: float) -> Group | None:
        ready = self.members.ready(now, self.timing.silent)
        if _too_few(self, ready) or self._must_wait(ready, now):
            return None
        source, restore, start = _choose_source(ready)
        ready.sort(key=lambda m: (m is not source, m.report.committed is None, m.id.rank))
        seconds = [_slot_seconds(self, member) for member in ready]
        self._number += 1
        self.group = Group(
            number=self._number,
            members=tuple(map(_as_member, ready)),
            source=0,
            start_step=start,
            restore=restore,
            # Processes that are launched divide their work themselves.
            shares=() if self.members.launched else by_speed(self.slots_per_step, seconds),
            skipped=self.skipped,
        )
        self._broken_since = None
        self._dissolving = False
        self._culprit = None
        self._progress.begin(start, now)
        self.revision += 1
        return self.group

    def _must_wait(self, ready: list[Member], now: float) -> bool:
        live = any(member.report.committed is not None for member in ready)
        if not live and now < self.recovering_until:
            return True  # members of an earlier group may still report
        since = self._broken_since if self._broken_since is not None else now
        stuck = self.timing.launched_stuck if self.members.launched else self.timing.stuck
        if self.group is not None and now - since < stuck:
            will_still_come = partial(_will_still_come, self.group, now, self.timing)
            if any(map(will_still_come, self.group_members)):
                return True
        if live or self.group is not None:
            return False
        oldest = min(member.ready_since or now for member in ready)
        if self.expected is None:
            return now - oldest < self.timing.settle
        missing = self.expected - {member.id.rank for member in ready}
        return bool(missing) and now - oldest < self.timing.expected


def waiting_ranks(rendezvous: Rendezvous) -> frozenset[int] | None:
    """Ranks that wait for a group and are in none; None: one is whole, or nobody is there."""
    present = rendezvous.members.present
    if rendezvous.training or not present:
        return None
    return frozenset(m.id.rank for m in present if m.report.phase is not Phase.TRAINING)


def better_shares(rendezvous: Rendezvous, current: Sequence[int]) -> tuple[int, ...] | None:
    """Shares of its group by which its steps are shorter; None: not by so much that it counts."""
    speeds = [_slot_seconds(rendezvous, member) for member in rendezvous.group_members]
    return improved(rendezvous.slots_per_step, current, speeds)


def _slot_seconds(rendezvous: Rendezvous, member: Member | None) -> float | None:
    """The time of a member's slot, by which shares are made; longer for a lesser weight."""
    if member is None or not rendezvous.balance or member.report.slot_seconds is None:
        return None
    return member.report.slot_seconds / rendezvous.weights.get(member.id.rank, 1.0)


def _newcomers(rendezvous: Rendezvous, group: Group, now: float) -> list[Member]:
    """Those who are ready outside the group, once nobody else is worth waiting for."""
    members, timing, expected = rendezvous.members, rendezvous.timing, rendezvous.expected
    ready = [m for m in members.ready(now, timing.silent) if group.index_of(m.id) is None]
    if not ready:
        return []
    present = {m.id.rank for m in ready} | {m.id.rank for m in group.members}
    complete = expected is not None and expected <= present
    oldest = min(m.ready_since or now for m in ready)
    patience = timing.launched_settle if members.launched else timing.settle
    return ready if complete or now - oldest >= patience else []


def _too_few(rendezvous: Rendezvous, ready: list[Member]) -> bool:
    """Those whose processes ended well count: nobody will come in their place."""
    members = rendezvous.members
    counts = members.launched and not rendezvous.whole
    ended = sum(m.finished for m in members.by_rank.values()) if counts else 0
    return not ready or len(ready) + ended < rendezvous.min_workers


def _allowed_silence(member: Member, standstill: float, timing: Timing, *, failing: bool) -> float:
    """After how long without a report a member of a whole group is lost.

    ``standstill``: since the group's steps, which need every member, advanced. ``failing``:
    launched processes have failed, maybe since a peer is gone; the agent of such a member asks, and
    is answered when there is news.
    """
    if failing:
        return timing.silent if member.failed_since is not None else timing.suspect
    return timing.lost if standstill > timing.lost else math.inf


def _will_still_come(group: Group, now: float, timing: Timing, member: Member | None) -> bool:
    """Whether a member of a broken group reports, but has not left it."""
    if member is None or _has_left(member, group) or member.finished:
        return False
    return now - member.seen <= (timing.suspect if member.suspect else timing.silent)


def _has_left(member: Member, group: Group) -> bool:
    report = member.report
    if member.gone or report.phase is Phase.LEAVING:
        return True
    return report.phase is Phase.READY and report.generation >= group.number


def _as_member(member: Member) -> GroupMember:
    report = member.report
    return GroupMember(id=member.id, address=report.address, processes=report.processes)


def _choose_source(ready: list[Member]) -> tuple[Member, Restore, int]:
    """The member whose model the others take over, and how many steps that model has seen."""
    live = [m for m in ready if m.report.committed is not None]
    if live:
        source = max(live, key=lambda m: (m.report.committed or 0, -m.id.rank))
        return source, Restore.LIVE, source.report.committed or 0
    saved = [m for m in ready if m.report.checkpoint is not None]
    if saved:
        source = max(saved, key=lambda m: (m.report.checkpoint or 0, -m.id.rank))
        return source, Restore.CHECKPOINT, source.report.checkpoint or 0
    return min(ready, key=lambda m: m.id.rank), Restore.FRESH, 0
