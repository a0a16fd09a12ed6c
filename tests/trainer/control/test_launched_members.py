"""Members whose processes their agents launch: who goes on, who failed, and when all is done."""

from __future__ import annotations

import pytest

from penstock.job.protocol import (
    AgentReport,
    DataSpec,
    Directive,
    Group,
    MemberId,
    Phase,
    ProcessState,
    SessionReply,
    SessionReport,
    TrainingProcess,
)
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from penstock.trainer.control.invariants import validate_state
from penstock.trainer.control.model.rendezvous import Timing

TIMING = Timing()


class Job:
    """A trainer and the agents of its pods, driven by hand."""

    def __init__(self, **facts: int) -> None:
        # Each test names its own fields.
        self.books = Coordinator(JobFacts(**facts), identity="one")  # type: ignore[arg-type]
        self.now = 100.0
        self.reports: dict[int, SessionReport] = {}

    def send(self, rank: int, phase: Phase, **fields: object) -> SessionReply:
        """What a pod says now, with what it said before."""
        before = self.reports.get(rank) or SessionReport(
            member=MemberId(rank=rank, incarnation=0, nonce=f"n{rank}"),
            phase=phase,
            address=f"10.0.0.{rank}:40{rank}",
            data=None,
            processes=rank + 1,
        )
        self.reports[rank] = before.model_copy(update={"phase": phase, **fields})
        reply = self.books.handle_session_report(self.reports[rank], self.now)
        validate_state(self.books.state)
        return reply

    def group(self) -> Group:
        group = self.books.state.rendezvous.group
        assert group is not None
        return group

    def train(self, *ranks: int) -> Group:
        """These pods form a world, and train."""
        self.books.expect_workers(ranks)
        for rank in ranks:
            self.send(rank, Phase.READY)
        group = self.group()
        for rank in ranks:
            reply = self.send(rank, Phase.TRAINING, generation=group.number, group=group)
            assert reply.directive is Directive.TRAIN
        return group

    def wait(self, seconds: float, *alive: int) -> None:
        """Let time pass; these pods go on saying what they said last."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.25)
            for rank in alive:
                self.books.handle_session_report(self.reports[rank], self.now)
            self.books.advance(self.now)

    def directive(self, rank: int) -> Directive:
        return self.books.state.rendezvous.directive(self.reports[rank].member)[0]

    def ready(self, *ranks: int) -> None:
        for rank in ranks:
            self.send(rank, Phase.READY, group=None)


def test_a_world_has_the_pods_in_order_with_their_processes_and_the_address_of_the_first() -> None:
    job = Job()
    group = job.train(2, 0, 1)
    assert [member.id.rank for member in group.members] == [0, 1, 2]
    assert [member.processes for member in group.members] == [1, 2, 3]
    assert group.members[0].address == "10.0.0.0:400"
    assert group.shares == ()


def test_peers_of_a_pod_that_is_killed_go_on_and_nobody_is_blamed() -> None:
    job = Job()
    job.train(0, 1, 2)
    job.now += 0.3
    for rank in (1, 2):
        assert job.send(rank, Phase.FAILED).directive is Directive.WAIT
    job.wait(TIMING.suspect, 1, 2)
    assert {job.directive(rank) for rank in (1, 2)} == {Directive.ABANDON}
    job.ready(1, 2)
    assert [member.id.rank for member in job.group().members] == [1, 2]
    assert job.directive(1) is Directive.JOIN


def test_the_pod_whose_processes_failed_first_ends_when_all_others_live() -> None:
    job = Job()
    job.train(0, 1, 2)
    job.send(1, Phase.FAILED)
    job.now += 0.1
    job.send(2, Phase.FAILED)
    job.wait(TIMING.heard - 0.1, 1, 2)
    assert {job.directive(rank) for rank in (1, 2)} == {Directive.WAIT}, "pod 0 may be lost"
    job.wait(0.5, 0, 1, 2)
    assert job.directive(1) is Directive.END
    assert job.directive(2) is Directive.WAIT
    ended = AgentReport(
        role="worker", rank=1, incarnation=0, state=ProcessState.EXITED, exit_code=1
    )
    job.books.handle_agent_report(ended, job.now)
    job.wait(0.25, 0, 2)
    assert {job.directive(rank) for rank in (0, 2)} == {Directive.ABANDON}
    job.ready(0, 2)
    assert [member.id.rank for member in job.group().members] == [0, 2]


def test_a_pod_that_asks_is_not_lost_while_its_report_is_held() -> None:
    job = Job()
    job.train(0, 1)
    job.send(1, Phase.FAILED)
    job.wait(TIMING.suspect + 0.25, 0)
    assert job.directive(1) is Directive.END
    both = Job()
    both.train(0, 1)
    both.send(1, Phase.FAILED)
    both.send(0, Phase.FAILED)
    both.wait(TIMING.suspect + 0.25)
    assert sorted(map(both.directive, (0, 1))) == [Directive.END, Directive.WAIT]


def test_a_trainer_that_stood_still_blames_nobody_for_it() -> None:
    job = Job()
    job.train(0, 1)
    job.send(1, Phase.FAILED)
    job.now += 30.0
    job.books.advance(job.now)
    assert job.directive(1) is Directive.WAIT, "pod 0 was not heard of since"


def test_a_pod_that_is_drained_lets_the_others_end_in_good_order() -> None:
    job = Job()
    job.train(0, 1, 2)
    job.send(0, Phase.LEAVING)
    assert {job.directive(rank) for rank in (1, 2)} == {Directive.REGROUP}
    assert job.send(2, Phase.FAILED).directive is Directive.ABANDON, "it lost a peer"
    job.ready(2)
    job.wait(20, 1, 2)
    assert len(job.group().members) == 3, "pod 1 is still saving"
    job.ready(1)
    assert [member.id.rank for member in job.group().members] == [1, 2]


def test_a_newcomer_costs_a_restart_and_waits_a_moment_for_others() -> None:
    job = Job()
    job.train(0, 1)
    job.books.expect_workers(range(4))
    job.ready(2)
    job.wait(TIMING.launched_settle - 0.5, 0, 1, 2)
    assert job.directive(0) is Directive.TRAIN
    job.ready(3)
    assert job.directive(0) is Directive.REGROUP


def test_steps_that_somebody_takes_need_everybody() -> None:
    job = Job()
    job.train(0, 1)
    quiet = Job()
    quiet.train(0, 1)
    job.reports[0] = job.reports[0].model_copy(update={"idle_seconds": 0.2})
    for each in (job, quiet):
        each.wait(TIMING.lost + 1, 0)
    assert job.directive(0) is Directive.TRAIN, "pod 1 is cut off from the trainer alone"
    assert quiet.directive(0) is Directive.ABANDON


def test_a_world_without_steps_of_which_anything_is_known_is_not_hung() -> None:
    job = Job()
    job.train(0)
    job.wait(60, 0)
    assert job.books.state.rendezvous.find_hung(job.now, patience=10.0) == {}


def test_the_job_is_done_when_all_ranks_ended_well_and_who_comes_then_is_told() -> None:
    job = Job(min_workers=2)
    job.train(0, 1)
    job.send(0, Phase.FINISHED)
    assert not job.books.done()
    job.send(1, Phase.FINISHED)
    assert job.books.done()
    assert job.send(2, Phase.READY).directive is Directive.FINISH
    assert not job.books.done(), "it has not heard it yet"


def test_who_was_lost_long_ago_does_not_keep_the_job_from_its_end() -> None:
    job = Job()
    job.train(0, 1)
    job.wait(TIMING.lost + 1, 1)
    job.ready(1)
    group = job.group()
    assert [member.id.rank for member in group.members] == [1]
    job.send(1, Phase.FINISHED, generation=group.number, group=group)
    assert job.books.done()


def test_a_pod_that_fails_after_others_finished_begins_again_without_them() -> None:
    job = Job(min_workers=2)
    job.train(0, 1)
    job.send(0, Phase.FINISHED)
    again = MemberId(rank=1, incarnation=1, nonce="again")
    job.send(1, Phase.READY, member=again, generation=0, group=None)
    assert [member.id for member in job.group().members] == [again]


def test_a_trainer_that_forgot_takes_up_the_world() -> None:
    job = Job()
    group = job.train(0, 1)
    job.books = Coordinator(JobFacts(), identity="two")
    assert job.send(1, Phase.TRAINING).directive is Directive.TRAIN
    assert job.group() == group
    job.wait(15, 0, 1)
    assert job.directive(0) is Directive.TRAIN


def test_sessions_and_launched_processes_do_not_mix() -> None:
    job = Job()
    job.train(0)
    data = DataSpec(dataset_size=10, global_batch=1, epochs=1)
    with pytest.raises(RefusedError, match=r"start it with `penstock run -- python train\.py`"):
        job.send(1, Phase.READY, data=data)
    other = Job()
    other.send(0, Phase.READY, data=data)
    with pytest.raises(RefusedError, match="this job's workers share its samples"):
        other.send(1, Phase.READY)


def processes_alone(*pids: int) -> tuple[TrainingProcess, ...]:
    return tuple(TrainingProcess(pid=pid, seconds=11.0, idle=0.2) for pid in pids)


def test_processes_of_one_pod_that_train_apart_are_refused() -> None:
    job = Job()
    report = AgentReport(role="worker", rank=0, incarnation=0, processes=processes_alone(1, 2))
    job.books.handle_agent_report(report, job.now)
    job.books.advance(job.now)
    assert job.books.state.copies.refusal is None, "started by the program itself"
    launched = report.model_copy(update={"launched": 2})
    job.books.handle_agent_report(launched, job.now)
    job.books.advance(job.now)
    assert job.books.state.copies.refusal is not None
