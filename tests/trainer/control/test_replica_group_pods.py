"""Replica groups of several pods: whole worlds only, and a session that is lost with its world."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.job.protocol import (
    DataSpec,
    Directive,
    Group,
    MemberId,
    Phase,
    SessionReply,
    SessionReport,
)
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from penstock.trainer.control.invariants import validate_state
from penstock.trainer.control.model.events import PodsKnown
from penstock.trainer.launch.launcher import (
    Blamed,
    Called,
    Dismissed,
    Ended,
    Event,
    Launcher,
    Released,
    Send,
    Signalled,
    Start,
    Ticked,
    step,
)

DATA = DataSpec(dataset_size=4800, global_batch=48, epochs=10)
EVENTS: dict[Directive, Event] = {
    Directive.REGROUP: Dismissed(whole=True),
    Directive.ABANDON: Dismissed(whole=False),
    Directive.END: Blamed(),
    Directive.FINISH: Released(),
}


class Session:
    """The session of one world of a replica group."""

    def __init__(self, job: Job, pod: Pod) -> None:
        self.job = job
        self.group: Group | None = None
        self.refused = False
        self.report = SessionReport(
            member=MemberId(rank=pod.rank, incarnation=pod.incarnation, nonce=job.nonce()),
            phase=Phase.READY,
            address=f"10.0.0.{pod.rank}:1",
            data=DATA,
        )

    def say(self) -> None:
        """Report, and do as it is told."""
        reply = self.job.books.handle_session_report(self.report, self.job.now)
        if reply.directive is Directive.REFUSED:
            self.refused = True
        elif reply.directive is Directive.JOIN and reply.group is not None:
            self.group = reply.group
            self.report = self.report.model_copy(
                update={
                    "phase": Phase.TRAINING,
                    "generation": reply.group.number,
                    "group": reply.group,
                    "committed": reply.group.start_step,
                }
            )
        elif reply.directive in (Directive.ABANDON, Directive.REGROUP):
            self.group = None
            self.report = self.report.model_copy(update={"phase": Phase.READY, "group": None})


class Pod:
    """One incarnation of a worker, with the launcher of its agent."""

    def __init__(self, job: Job, rank: int, incarnation: int) -> None:
        self.job = job
        self.rank = rank
        self.incarnation = incarnation
        self.launcher = Launcher(1, grace_seconds=25)
        self.member = MemberId(rank=rank, incarnation=incarnation, nonce=job.nonce())
        self.group: Group | None = None
        self.deaf = False  # its processes do not hear SIGTERM
        self.session: Session | None = None
        self.alive = True
        self.drained_at = math.inf

    @property
    def runs(self) -> bool:
        return self.alive and bool(self.launcher.running)

    def report(self) -> SessionReport:
        return SessionReport(
            member=self.member,
            phase=self.launcher.phase,
            address=f"10.0.0.{self.rank}:2",
            data=None,
            replica_pods=self.job.pods_per_group,
            generation=self.launcher.world,
            group=self.group,
        )

    def say(self) -> SessionReply:
        """Report, and do as it is told."""
        report = self.report()
        reply = self.job.books.handle_session_report(report, self.job.now)
        if reply.directive is Directive.REFUSED:
            self.drain()
        elif reply.directive is Directive.JOIN:
            if reply.group is not None and reply.group.number > self.launcher.world:
                self.group = reply.group
                self.take(Called(reply.group.number))
        elif reply.directive in EVENTS:
            self.take(EVENTS[reply.directive])
        return reply

    def take(self, event: Event) -> None:
        """An event of the launcher, and what follows of it."""
        self.launcher, orders = step(self.launcher, event, self.job.now)
        for order in orders:
            match order:
                case Start():
                    self.session = None
                case Send(number) if number is signal.SIGKILL or not self.deaf:
                    self.end(128 + number)
        if self.launcher.phase is Phase.READY:
            self.group = None
        if self.launcher.exit_code is not None and self.alive:
            self.job.lose(self)

    def drain(self) -> None:
        """Its agent is told to end it."""
        self.drained_at = min(self.drained_at, self.job.now)
        self.take(Signalled(signal.SIGTERM))

    def end(self, code: int) -> None:
        """Its processes end."""
        self.session = None
        self.take(Ended(0, code))

    def begin_session(self) -> None:
        """The processes of its world have found each other, as those of a process group do."""
        world = [self.job.pods[rank] for rank in self.job.ranks_beside(self.rank)]
        found = all(one.runs and one.launcher.world == self.launcher.world for one in world)
        if self.rank % self.job.pods_per_group == 0 and found and self.session is None:
            self.session = Session(self.job, self)
            self.job.sessions.append(self.session)


class Job:
    """A trainer, and the pods of its replica groups, in simulated time."""

    def __init__(self, groups: int, pods_per_group: int, **facts: Any) -> None:
        self.pods_per_group = pods_per_group
        self.now = 100.0
        self._nonces = 0
        self.books = Coordinator(JobFacts(**facts), identity="one")
        self.sessions: list[Session] = []
        self.ended: list[tuple[int, int]] = []
        ranks = range(groups * pods_per_group)
        self.pods = {rank: Pod(self, rank, 0) for rank in ranks}
        self.see_pods()

    def nonce(self) -> str:
        self._nonces += 1
        return f"n{self._nonces}"

    def ranks_beside(self, rank: int) -> range:
        first = rank - rank % self.pods_per_group
        return range(first, first + self.pods_per_group)

    def see_pods(self) -> None:
        expected = frozenset(rank for rank, pod in self.pods.items() if pod.alive)
        self.books.observe(PodsKnown(expected, ended=tuple(self.ended)), self.now)

    def lose(self, pod: Pod) -> None:
        """A pod ends, and the cluster says so."""
        pod.alive, pod.session = False, None
        self.ended.append((pod.rank, pod.incarnation))
        self.see_pods()

    def replace(self, rank: int) -> None:
        """The controller has another pod in place of one that has ended."""
        assert not self.pods[rank].alive
        self.pods[rank] = Pod(self, rank, self.pods[rank].incarnation + 1)
        self.see_pods()

    def turn(self, rank: int) -> None:
        """Whoever lives of a pod speaks once."""
        pod = self.pods[rank]
        if pod.alive:
            pod.take(Ticked())
        if pod.alive and self.now > pod.drained_at + pod.launcher.grace_seconds:
            pod.take(Signalled(signal.SIGKILL))  # as the agent does
        if pod.alive:
            pod.say()
        if pod.runs:
            pod.begin_session()
        if pod.session is not None:
            pod.session.say()
            if pod.session.refused:  # its program ends with an error
                pod.end(1)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            for rank in self.pods:
                self.turn(rank)
            self.books.advance(self.now)
            validate_state(self.books.state)

    def trains(self) -> bool:
        """Whether all replica groups train together."""
        rendezvous = self.books.state.rendezvous
        group = rendezvous.group
        ranks = [member.id.rank for member in group.members] if group is not None else []
        first = list(range(0, len(self.pods), self.pods_per_group))
        live = [pod.session for pod in self.pods.values() if pod.session is not None]
        return (
            rendezvous.training
            and sorted(ranks) == first
            and len(live) == len(first)
            and all(one.group == group for one in live)
        )

    def train(self) -> None:
        self.pass_time(20)
        assert self.trains()


def test_the_member_of_a_session_is_the_first_pod_of_each_replica_group() -> None:
    job = Job(2, 2, min_workers=4)
    job.train()
    group = job.books.state.rendezvous.group
    assert group is not None
    assert [member.id.rank for member in group.members] == [0, 2]
    assert {pod.group.number for pod in job.pods.values() if pod.group} == {1}


@pytest.mark.parametrize("lost", [2, 3])
def test_a_pod_that_ends_costs_its_replica_group_and_the_other_one_goes_on(lost: int) -> None:
    job = Job(2, 2, min_workers=2)
    job.train()
    before = job.pods[2].session
    job.lose(job.pods[lost])
    job.pass_time(3)
    group = job.books.state.rendezvous.group
    assert group is not None
    assert [member.id.rank for member in group.members] == [0]
    assert job.pods[0].session is not None
    left = job.pods[5 - lost]
    assert left.alive, "a pod that is well is not replaced"
    assert left.launcher.phase is Phase.READY, "its processes have ended: it waits"
    job.replace(lost)
    job.train()
    assert before is not None
    before.say()
    assert before.refused, "what is left of the lost world counts no more"
    job.pass_time(1)
    assert job.trains()


def test_a_process_that_fails_ends_its_own_pod_alone() -> None:
    job = Job(2, 2)
    job.train()
    job.pods[3].end(1)
    job.turn(3)
    job.now += 0.1
    job.pods[2].end(1)  # it has lost a peer
    job.pass_time(2)
    assert [rank for rank, pod in job.pods.items() if not pod.alive] == [3]


def test_a_part_of_a_replica_group_is_none() -> None:
    job = Job(1, 3)
    job.lose(job.pods[1])
    job.pass_time(60)
    assert not job.sessions
    state = job.books.state
    assert state.rendezvous.expected == frozenset(), "nobody can come"
    assert [pod.launcher.phase for pod in job.pods.values() if pod.alive] == [Phase.READY] * 2
    message = job.pods[0].say().message
    assert message == "waiting for workers: 2 of at least 3 are ready"


def test_the_session_waits_for_whole_replica_groups_only() -> None:
    job = Job(2, 2)
    job.lose(job.pods[3])
    job.pass_time(1)
    assert job.books.state.rendezvous.expected == frozenset({0})
    assert job.books.state.expected == frozenset({0, 1, 2})


def test_a_pod_that_comes_back_when_all_is_trained_is_told_to_end() -> None:
    job = Job(1, 2)
    job.train()
    [session] = job.sessions
    books = job.books
    order = books.state.order
    assert order is not None
    for _ in range(order.total_steps):
        reply = books.handle_session_report(session.report, job.now)
        session.report = session.report.model_copy(update={"committed": reply.lease_stop_step})
        if reply.lease_stop_step == order.total_steps:
            break
    session.report = session.report.model_copy(update={"phase": Phase.CLOSED})
    books.handle_session_report(session.report, job.now)
    job.lose(job.pods[1])
    job.pods[0].end(0)
    assert job.pods[0].launcher.exit_code == 0
    job.replace(1)
    job.pass_time(5)
    assert not job.pods[1].alive
    assert job.pods[1].launcher.exit_code == 0, "there is nothing left to do"


def test_a_node_unit_that_would_cut_replica_groups_is_refused() -> None:
    job = Job(1, 2, node_unit=3)
    with pytest.raises(RefusedError, match=r"nodeUnit is 3: make it a multiple of 2"):
        job.pods[0].say()


def test_pods_of_other_replica_groups_than_the_jobs_are_refused() -> None:
    job = Job(1, 2)
    job.pods[0].say()
    job.pods_per_group = 3
    with pytest.raises(RefusedError, match=r"3; the job has replica groups of 2 pods"):
        job.pods[1].say()


def test_workers_without_a_replica_group_are_refused_beside_them() -> None:
    job = Job(1, 2)
    plain = job.pods[0].report().model_copy(update={"replica_pods": 1})
    job.books.handle_session_report(plain, job.now)
    with pytest.raises(RefusedError, match=r"workers without it"):
        job.pods[1].say()


class Lives(RuleBasedStateMachine):
    """Pods come and go, processes fail, reports are late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.job = Job(2, 2)
        self.past: list[SessionReport] = []

    def pod(self, data: st.DataObject, *, alive: bool = True) -> Pod:
        found = [pod for pod in self.job.pods.values() if pod.alive is alive]
        return data.draw(st.sampled_from(found))

    @precondition(lambda self: any(pod.alive for pod in self.job.pods.values()))
    @rule(data=st.data(), turns=st.integers(1, 3))
    def speak(self, data: st.DataObject, turns: int) -> None:
        rank = self.pod(data).rank
        for _ in range(turns):
            self.past += [self.job.pods[rank].report()]
            self.job.turn(rank)

    @precondition(lambda self: any(pod.alive for pod in self.job.pods.values()))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.job.lose(self.pod(data))

    @precondition(lambda self: not all(pod.alive for pod in self.job.pods.values()))
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        self.job.replace(self.pod(data, alive=False).rank)

    @precondition(lambda self: any(pod.runs for pod in self.job.pods.values()))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        running = [pod for pod in self.job.pods.values() if pod.runs]
        data.draw(st.sampled_from(running)).end(1)

    @rule(data=st.data(), deaf=st.booleans())
    def block(self, data: st.DataObject, deaf: bool) -> None:
        data.draw(st.sampled_from(list(self.job.pods.values()))).deaf = deaf

    @precondition(lambda self: any(pod.alive for pod in self.job.pods.values()))
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        self.pod(data).drain()

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A report that was under way for long."""
        report = data.draw(st.sampled_from(self.past[-20:]))
        self.job.books.handle_session_report(report, self.job.now)

    @precondition(lambda self: any(one.refused for one in self.job.sessions))
    @rule()
    def repeat_refused(self) -> None:
        for one in self.job.sessions:
            if one.refused:
                reply = self.job.books.handle_session_report(one.report, self.job.now)
                assert reply.directive is Directive.REFUSED

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0, 12.0]))
    def pass_time(self, seconds: float) -> None:
        self.job.pass_time(seconds)

    @invariant()
    def is_whole(self) -> None:
        validate_state(self.job.books.state)
        for number, one in self.job.books.state.replica_groups.by_number.items():
            session = self.job.books.state.rendezvous.members.by_rank.get(2 * number)
            assert one.training or session is None, "a session of processes without a world"

    def teardown(self) -> None:
        """Left alone, with every pod replaced, all replica groups train again."""
        for _ in range(8):
            for rank, pod in self.job.pods.items():
                pod.deaf = False
                if not pod.alive:
                    self.job.replace(rank)
            self.job.pass_time(15)
            if self.job.trains():
                return
        raise AssertionError("not all replica groups train")


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
