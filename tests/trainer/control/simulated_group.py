"""A simulated job for its trainer: sessions that train together, agents, pods and leasing holders.

Time is a number. Sessions obey what they are told, as `penstock.trainer.elastic` does: they commit
in step, or find that one of them is gone; whatever they say goes through `Calls` as plain data.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from penstock.job.protocol import (
    DataSpec,
    Directive,
    EpochAudit,
    Group,
    MemberId,
    Phase,
    SessionReply,
    SessionReport,
)

Json = dict[str, Any]
SAVE_EVERY: Final = 20


class Calls(Protocol):
    """A job's trainer."""

    def call(self, call: str, now: float, given: Any) -> Any:
        """Make one call with plain data; its answer is plain data."""


class SimSession:
    """One training process with a session."""

    def __init__(self, world: GroupWorld, member: MemberId) -> None:
        self.world = world
        self.member = member
        self.phase = Phase.READY
        self.group: Group | None = None
        self.number = 0
        self.committed: int | None = None
        self.checkpoint: int | None = world.checkpoint
        self.failed: int | None = None
        self.lost: tuple[MemberId, ...] = ()
        self.slot_seconds: float | None = None
        self.troubles: list[Json] = []
        self.audits: tuple[EpochAudit, ...] = ()
        self.result: Json | None = None
        self.lease_stop = 0
        self.regroups = False
        self.alive = True
        self.past: list[Json] = []

    def report(self) -> Json:
        """What it says now."""
        return SessionReport(
            member=self.member,
            phase=self.phase,
            address=f"h{self.member.rank}:1",
            data=self.world.data,
            generation=self.number,
            group=self.group,
            committed=self.committed,
            computed=self.committed or 0,
            checkpoint=self.checkpoint,
            failed=self.failed,
            lost=self.lost,
            slot_seconds=self.slot_seconds,
            audits=self.audits,
            result=self.result,
            troubles=self.troubles,
        ).model_dump(mode="json", exclude_defaults=True)

    def exchange(self, lose_reply: bool = False) -> None:
        """Report, and do as it is told."""
        said = self.report()
        self.past.append(said)
        answer = self.world.trainer.call("session", self.world.now, said)
        if not lose_reply and "error" not in answer:
            self.obey(SessionReply.model_validate(answer))

    def obey(self, reply: SessionReply) -> None:
        """Carry out the trainer's orders."""
        if reply.directive is Directive.REFUSED:
            self.alive = False
        elif self.phase is Phase.READY and reply.directive is Directive.FINISH:
            self.phase = Phase.CLOSED
        elif self.phase is Phase.READY and reply.directive is Directive.JOIN and reply.group:
            self.group, self.number = reply.group, reply.group.number
            self.committed = reply.group.start_step
            self.phase, self.lost, self.regroups = Phase.TRAINING, (), False
        elif self.phase is Phase.TRAINING and reply.directive is Directive.ABANDON:
            self.leave()
        if self.group is not None and reply.group == self.group:
            self.lease_stop = reply.lease_stop_step
            self.regroups = self.regroups or reply.directive is Directive.REGROUP

    def leave(self, lost: tuple[MemberId, ...] = ()) -> None:
        """The group is no more."""
        self.phase, self.group, self.lost = Phase.READY, None, lost


class GroupWorld:
    """A job and everything around its trainer."""

    def __init__(self, trainer: Calls, data: DataSpec, slots_per_step: int) -> None:
        self.trainer = trainer
        self.data = data
        self.order = data.order(slots_per_step)
        self.now = 1000.0
        self.sessions: list[SimSession] = []
        self.checkpoint: int | None = None
        self._names = 0

    def add_session(self, rank: int, incarnation: int = 0) -> SimSession:
        """A process begins; an older one of its rank is not stopped by that."""
        self._names += 1
        member = MemberId(rank=rank, incarnation=incarnation, nonce=f"n{self._names}")
        session = SimSession(self, member)
        self.sessions.append(session)
        return session

    def live(self) -> list[SimSession]:
        """Sessions whose processes live."""
        return [session for session in self.sessions if session.alive]

    def tick(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.trainer.call("advance", self.now, None)

    def step(self, steps: int, ragged: bool = False) -> None:
        """The newest group commits steps, or its members find that one of them is gone.

        ``ragged``: then, the first one has committed a step that the others have not.
        """
        training = [s for s in self.live() if s.phase is Phase.TRAINING and s.group is not None]
        if not training:
            return
        group = max((s.group for s in training if s.group), key=lambda g: g.number)
        members = [s for s in training if s.group is not None and s.group.number == group.number]
        here = {s.member for s in members}
        gone = tuple(other.id for other in group.members if other.id not in here)
        if gone:
            for session in members:
                if ragged and session is members[0] and session.committed is not None:
                    session.committed = min(session.committed + 1, self.order.total_steps)
                session.leave(gone)
            return
        if any(s.regroups for s in members):
            for session in members:
                session.leave()
            return
        begin = max(s.committed or 0 for s in members)
        stop = min(begin + steps, members[0].lease_stop, self.order.total_steps)
        for session in members:
            session.committed = max(stop, begin)
            self._account(session, group)
        if stop // SAVE_EVERY > begin // SAVE_EVERY:
            self.checkpoint = stop
            for session in members:
                session.checkpoint = stop
        if stop >= self.order.total_steps:
            for session in members:
                session.phase = Phase.FINISHED

    def _account(self, session: SimSession, group: Group) -> None:
        """The first member says what was seen in the epochs that have ended."""
        if group.members[0].id != session.member or session.committed is None:
            return
        ended = session.committed // self.order.steps_per_epoch
        session.audits = tuple(
            EpochAudit(
                epoch=epoch,
                samples_seen=self.data.dataset_size,
                samples_lost=0,
                samples_repeated=0,
            )
            for epoch in range(ended)
        )

    def close(self, session: SimSession) -> None:
        """Its script has ended its evaluation."""
        if session.phase is Phase.FINISHED:
            session.phase = Phase.CLOSED
            session.result = {"accuracy": 0.5} if session.audits else None

    def round(self, seconds: float = 0.2) -> None:
        """Everybody does something once."""
        self.tick(seconds)
        for session in self.live():
            session.exchange()
        self.step(4)
        for session in self.live():
            self.close(session)
