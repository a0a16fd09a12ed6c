"""The trainer's memory: the ledger follows the surviving model; a new trainer takes it up."""

from __future__ import annotations

import msgpack
import pytest

from penstock.base.enums import Guarantee
from penstock.crds.conditions import JobReason
from penstock.data.ledger import Ledger, Slot
from penstock.data.ledger.journal import append, begin
from penstock.job.protocol import (
    AgentReply,
    AgentReport,
    DataSpec,
    Directive,
    EpochAudit,
    Group,
    MemberId,
    Phase,
    ProcessState,
    SessionReply,
    SessionReport,
    Trouble,
    Usage,
    decode,
    encode,
)
from penstock.trainer.cluster.job_end import LATECOMER_SECONDS, End
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from penstock.trainer.control.model.events import PodsKnown
from penstock.trainer.control.model.write_problems import FORGET_SECONDS
from penstock.trainer.control.queries import find_latecomers
from penstock.trainer.journal import restore

DATA = DataSpec(dataset_size=1000, global_batch=10, epochs=3)  # 100 steps per epoch
SLOTS = 8


class Trainer:
    """A coordinator and its sessions, driven by hand."""

    def __init__(self, **facts: object) -> None:
        # Each test names its own fields.
        self.books = Coordinator(JobFacts(slots_per_step=SLOTS, **facts), identity="one")  # type: ignore[arg-type]
        self.now = 100.0
        self.committed: dict[int, int | None] = {}

    def send(self, rank: int, phase: Phase, **fields: object) -> SessionReply:
        member = MemberId(rank=rank, incarnation=0, nonce=f"n{rank}")
        values = {"data": DATA, "address": f"h{rank}:1", **fields}
        report = SessionReport(member=member, phase=phase, **values)
        return self.books.handle_session_report(report, self.now)

    def form(self, *ranks: int, committed: int | None = None) -> Group:
        """Bring these ranks into a new group and let them train."""
        self.books.expect_workers(ranks)
        generation = (
            self.books.state.rendezvous.group.number if self.books.state.rendezvous.group else 0
        )
        for rank in ranks:
            self.send(rank, Phase.READY, committed=committed, generation=generation)
        group = self.books.state.rendezvous.group
        assert group is not None
        for rank in ranks:
            self.train(rank, group, group.start_step)
        return group

    def train(self, rank: int, group: Group, committed: int) -> SessionReply:
        return self.send(
            rank, Phase.TRAINING, generation=group.number, group=group, committed=committed
        )

    def know_pods(self, *running: tuple[int, int], ended: tuple[tuple[int, int], ...] = ()) -> None:
        """The cluster's pods of workers, by rank and incarnation."""
        expected = self.books.state.rendezvous.expected or frozenset()
        pods = PodsKnown(expected=expected, running=frozenset(running), ended=ended)
        self.books.observe(pods, self.now)

    def end(self, rank: int) -> None:
        """The process of a rank is no more."""
        self.know_pods(ended=((rank, 0),))

    @property
    def ledger(self) -> Ledger:
        assert self.books.state.ledger is not None
        return self.books.state.ledger


def test_a_group_holds_a_lead_of_whole_steps_and_no_more() -> None:
    trainer = Trainer()
    group = trainer.form(0, 1)
    reply = trainer.train(0, group, 0)
    assert reply.directive is Directive.TRAIN
    assert reply.lease_stop_step == 64
    assert all(lease.stop % SLOTS == 0 for lease in trainer.ledger.leases())
    trainer.ledger.state.check_invariants()


def test_the_lead_grows_with_the_speed_to_about_a_minute() -> None:
    trainer = Trainer()
    group = trainer.form(0)
    for step in range(1, 21):
        trainer.now += 0.1
        reply = trainer.train(0, group, step)
    assert reply.lease_stop_step == 300, "10 steps per second would be a lead of 600: to the end"
    slow = Trainer()
    group = slow.form(0)
    for step in range(1, 21):
        slow.now += 1.0
        reply = slow.train(0, group, step)
    assert reply.lease_stop_step <= 20 + 64 + 1


def test_acknowledged_steps_are_consumed_and_an_old_group_counts_no_more() -> None:
    trainer = Trainer()
    old = trainer.form(0, 1)
    trainer.train(0, old, 7)
    assert trainer.books.state.committed_steps == 7
    new = trainer.form(0, 1, committed=7)
    assert new.number > old.number
    assert trainer.train(1, old, 9).directive is Directive.ABANDON
    assert trainer.books.state.committed_steps == 7, "an old group's word was taken"


def test_the_surviving_model_is_the_history_that_counts() -> None:
    trainer = Trainer()
    group = trainer.form(0, 1)
    trainer.train(0, group, 9)
    trainer.end(0)
    trainer.send(1, Phase.READY, committed=8, generation=group.number)  # it did not see step 8
    assert trainer.books.state.committed_steps == 8
    trainer.ledger.state.check_invariants()


def test_a_member_that_is_ahead_of_the_trainer_is_believed() -> None:
    trainer = Trainer()
    group = trainer.form(0)
    trainer.train(0, group, 5)
    trainer.now += 60  # the lease expired meanwhile: nobody else held the slots
    trainer.books.advance(trainer.now)
    assert trainer.train(0, group, 30).directive is Directive.TRAIN
    assert trainer.books.state.committed_steps == 30
    trainer.ledger.state.check_invariants()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset_size": 999}, "data.dataset_size: 999; the job began with 1000"),
        ({"global_batch": 20}, "data.global_batch: 20"),
        ({"seed": 4}, "data.seed: 4"),
        ({"epochs": 4}, "data.epochs: 4"),
    ],
)
def test_other_data_are_refused_by_name(changes: dict[str, int], words: str) -> None:
    trainer = Trainer()
    trainer.form(0)
    with pytest.raises(RefusedError, match=words):
        trainer.send(1, Phase.READY, data=DATA.model_copy(update=changes))


def test_more_steps_than_the_job_has_are_refused() -> None:
    trainer = Trainer()
    trainer.form(0)
    with pytest.raises(RefusedError, match="committed: 301; the job has 300 steps"):
        trainer.send(0, Phase.TRAINING, committed=301)


def test_at_most_once_in_a_group_still_counts_what_was_committed() -> None:
    trainer = Trainer(guarantee=Guarantee.AT_MOST_ONCE)
    group = trainer.form(0)
    trainer.train(0, group, 3)
    assert trainer.books.state.committed_steps == 3


def crash(trainer: Trainer, slot: int, *ranks: int) -> None:
    """Each of some workers raises an error on the slot, one group after the other."""
    for rank in ranks:
        group = trainer.form(rank)
        trainer.send(rank, Phase.LEAVING, generation=group.number, committed=0, failed=slot)
        trainer.now += 1


def test_a_slot_on_which_three_workers_crashed_ends_the_job_with_its_name() -> None:
    trainer = Trainer()
    crash(trainer, 5, 0, 1, 1)
    assert trainer.ledger.quarantine == [], "the same worker twice counts once"
    crash(trainer, 5, 2)
    assert trainer.ledger.quarantine == [(5, 6)]
    assert trainer.books.summary(trainer.now).quarantined == [(5, 6)]
    # This job has data.
    [sample] = trainer.books.state.data.order(SLOTS).samples(Slot(0, 0, 5)).tolist()  # type: ignore[union-attr]
    with pytest.raises(
        RefusedError,
        match=rf"slot 5 \(samples {sample}\) failed on 3 different workers.*set input\.skipBad",
    ):
        trainer.send(3, Phase.READY)


def test_with_skip_bad_the_next_group_trains_without_the_slot() -> None:
    trainer = Trainer(skip_bad=True)
    crash(trainer, 5, 0, 1, 2)
    group = trainer.form(3)
    assert group.skipped == ((5, 6),)
    assert trainer.train(3, group, 1).directive is Directive.TRAIN
    assert trainer.books.state.committed_steps == 1
    trainer.ledger.state.check_invariants()
    trainer.train(3, group, 300)
    assert trainer.ledger.finished


def test_who_sets_skip_bad_later_lets_the_job_go_on() -> None:
    trainer = Trainer()
    crash(trainer, 5, 0, 1, 2)
    with pytest.raises(RefusedError):
        trainer.send(3, Phase.READY)
    trainer.books.learn(JobFacts(slots_per_step=SLOTS, skip_bad=True))
    assert trainer.form(3).skipped == ((5, 6),)


def test_quarantine_outlives_the_trainer() -> None:
    trainer = Trainer(skip_bad=True)
    crash(trainer, 5, 0, 1, 2)
    journal = begin(trainer.ledger, trainer.books.extra())
    following = Trainer(skip_bad=True)
    restore(journal, "journal", following.books, following.now)
    following.now += 10
    assert following.form(3).skipped == ((5, 6),)


def test_a_failure_of_a_slot_that_is_not_the_groups_changes_nothing() -> None:
    trainer = Trainer()
    group = trainer.form(0)
    trainer.train(0, group, 1)
    before = trainer.ledger.snapshot()
    for slot in (5, 1 << 40):
        trainer.send(0, Phase.LEAVING, generation=group.number, committed=1, failed=slot)
    assert trainer.ledger.snapshot()["blame"] == before["blame"] == []


def test_unsharded_is_refused_to_a_group_with_the_field() -> None:
    trainer = Trainer(guarantee=Guarantee.UNSHARDED)
    with pytest.raises(RefusedError, match=r"input\.guarantee: Unsharded"):
        trainer.send(0, Phase.READY)


def test_the_script_may_choose_the_slots_and_a_small_batch_limits_them() -> None:
    trainer = Trainer()
    spec = DATA.model_copy(update={"slots_per_step": 5})
    trainer.send(0, Phase.READY, data=spec)
    assert trainer.books.state.rendezvous.slots_per_step == 5
    small = Trainer()
    small.send(0, Phase.READY, data=DATA.model_copy(update={"global_batch": 3}))
    assert small.books.state.rendezvous.slots_per_step == 3


def test_the_end_comes_when_every_process_has_left_the_session() -> None:
    trainer = Trainer()
    group = trainer.form(0, 1)
    for rank in (0, 1):
        trainer.train(rank, group, 300)
        trainer.send(rank, Phase.FINISHED, generation=group.number, committed=300)
    assert not trainer.books.done(), "the chief may still evaluate"
    trainer.send(1, Phase.CLOSED, generation=group.number, committed=300)
    trainer.end(1)
    assert not trainer.books.done()
    result = {"accuracy": 0.9}
    trainer.send(0, Phase.CLOSED, generation=group.number, committed=300, result=result)
    assert trainer.books.done()
    assert trainer.books.summary(trainer.now).result == result


def test_who_comes_after_the_end_is_told_so() -> None:
    trainer = Trainer()
    group = trainer.form(0)
    trainer.train(0, group, 300)
    trainer.send(0, Phase.FINISHED, generation=group.number, committed=300)
    assert trainer.send(1, Phase.READY).directive is Directive.FINISH


def finished_by(*ranks: int) -> Trainer:
    """A job whose data are exhausted, and whose processes are no more."""
    trainer = Trainer()
    group = trainer.form(*ranks)
    for rank in ranks:
        trainer.train(rank, group, 300)
    for rank in ranks:
        trainer.send(rank, Phase.CLOSED, generation=group.number, committed=300)
    for rank in ranks:
        trainer.end(rank)
    return trainer


def agent_report(rank: int, state: ProcessState = ProcessState.RUNNING) -> AgentReport:
    return AgentReport(role="worker", rank=rank, incarnation=0, state=state)


def test_who_comes_when_the_others_have_gone_is_told_so_too() -> None:
    trainer = finished_by(0, 1)
    assert trainer.send(2, Phase.READY).directive is Directive.FINISH


def test_a_worker_that_is_still_starting_is_known_by_its_pod_or_its_agent() -> None:
    trainer = finished_by(0, 1)
    trainer.know_pods((0, 0), (2, 0))
    trainer.books.handle_agent_report(agent_report(3), trainer.now)
    assert find_latecomers(trainer.books.state, trainer.now) == {2, 3}
    trainer.send(2, Phase.READY)
    assert find_latecomers(trainer.books.state, trainer.now) == {3}
    trainer.books.handle_agent_report(agent_report(3, ProcessState.EXITED), trainer.now)
    trainer.know_pods((0, 0), (2, 0), (3, 0))  # its container has yet to end
    assert not find_latecomers(trainer.books.state, trainer.now)


def test_the_next_process_of_a_rank_is_awaited_and_a_silent_agent_is_not() -> None:
    trainer = finished_by(0, 1)
    trainer.know_pods((1, 1))
    assert find_latecomers(trainer.books.state, trainer.now) == {1}
    trainer.know_pods()
    trainer.books.handle_agent_report(agent_report(2), trainer.now)
    assert find_latecomers(trainer.books.state, trainer.now + 11) == set()


def test_the_trainer_stays_until_late_workers_have_heard_of_the_end() -> None:
    trainer, end = finished_by(0, 1), End()
    trainer.know_pods((2, 0))
    for _ in range(8):
        assert not end.reached(trainer.books, trainer.now)
        trainer.now += 1
    assert trainer.send(2, Phase.READY).directive is Directive.FINISH
    assert not end.reached(trainer.books, trainer.now)
    trainer.send(2, Phase.CLOSED)
    assert not end.reached(trainer.books, trainer.now)
    assert end.reached(trainer.books, trainer.now + 3)


def test_a_worker_that_never_asks_holds_the_trainer_for_a_minute_at_most() -> None:
    trainer, end = finished_by(0, 1), End()
    trainer.know_pods((2, 0))
    assert not end.reached(trainer.books, trainer.now)
    assert not end.reached(trainer.books, trainer.now + LATECOMER_SECONDS)
    assert end.reached(trainer.books, trainer.now + LATECOMER_SECONDS + 1)


def test_audits_are_summed_and_those_that_a_rollback_undoes_are_dropped() -> None:
    trainer = Trainer()
    group = trainer.form(0)
    audits = tuple(
        EpochAudit(epoch=e, samples_seen=1000, samples_lost=0, samples_repeated=e) for e in (0, 1)
    )
    trainer.send(
        0, Phase.TRAINING, generation=group.number, group=group, committed=210, audits=audits
    )
    summary = trainer.books.summary(trainer.now)
    assert (summary.samples_seen, summary.samples_repeated) == (2000, 1)
    assert trainer.train(0, group, 210).audited_epochs == 2
    trainer.end(0)
    trainer.send(1, Phase.READY, checkpoint=150)
    assert trainer.books.state.committed_steps == 150
    assert trainer.books.summary(trainer.now).samples_seen == 1000


def test_a_new_trainer_takes_up_the_journal_and_the_ranks_do_not_notice() -> None:
    trainer = Trainer()
    group = trainer.form(0, 1)
    journal = begin(trainer.ledger, trainer.books.extra())
    trainer.ledger.take_events()
    trainer.train(0, group, 12)
    journal += append(trainer.ledger.take_events())
    after = Trainer()
    restore(journal, "the journal", after.books, after.now)
    assert after.books.state.committed_steps == 12
    reply = after.train(0, group, 15)
    assert reply.directive is Directive.TRAIN
    assert after.books.state.committed_steps == 15
    assert after.books.state.rendezvous.group == group
    after.ledger.state.check_invariants()


def test_a_new_trainer_without_any_state_learns_it_from_the_ranks() -> None:
    group = Trainer().form(0, 1)
    after = Trainer()
    after.books.await_survivors(after.now)
    assert after.train(1, group, 33).directive is Directive.TRAIN
    assert after.books.state.committed_steps == 33
    assert after.books.state.lease_stop_step > 33
    after.ledger.state.check_invariants()


def test_a_journal_of_other_data_is_passed_over() -> None:
    trainer = Trainer()
    trainer.form(0)
    journal = begin(trainer.ledger, {**(trainer.books.extra() or {}), "slots_per_step": 3})
    after = Trainer()
    restore(journal, "the journal", after.books, after.now)
    assert after.books.state.ledger is None


def test_shares_follow_the_measured_speeds() -> None:
    trainer = Trainer()
    group = trainer.form(0, 1)
    for seconds in range(12):
        trainer.now += 0.5
        for rank, slot_seconds in ((0, 0.1), (1, 0.3)):
            reply = trainer.send(
                rank,
                Phase.TRAINING,
                generation=group.number,
                group=group,
                committed=seconds,
                slot_seconds=slot_seconds,
            )
    assert reply.shares == (6, 2)


def test_usage_is_that_of_running_processes_that_report() -> None:
    trainer = Trainer()
    used = Usage(cpu_cores=1.5, memory_bytes=100)
    trainer.books.handle_agent_report(
        AgentReport(role="worker", rank=0, incarnation=0, usage=used), now=100
    )
    trainer.books.handle_agent_report(
        AgentReport(role="worker", rank=1, incarnation=0, usage=used), now=80
    )
    ended = AgentReport(role="worker", rank=2, incarnation=0, state=ProcessState.EXITED)
    trainer.books.handle_agent_report(ended, now=100)
    assert trainer.books.state.agents.usage(now=101) == {("worker", 0): used}


def test_the_end_of_an_evaluator_is_not_that_of_the_worker_of_its_rank() -> None:
    trainer = Trainer()
    group = trainer.form(0, 1)
    ended = AgentReport(
        role="evaluator", rank=0, incarnation=0, state=ProcessState.EXITED, exit_code=0
    )
    trainer.books.handle_agent_report(ended, now=trainer.now)
    assert trainer.train(0, group, 1).directive is Directive.TRAIN


def test_a_program_without_the_api_ends_the_job_when_it_ended_well() -> None:
    trainer = Trainer()
    trainer.books.expect_workers({0})

    def ended(code: int) -> AgentReport:
        return AgentReport(
            role="worker", rank=0, incarnation=0, state=ProcessState.EXITED, exit_code=code
        )

    assert not trainer.books.done()
    trainer.books.handle_agent_report(ended(1), now=1)
    assert not trainer.books.done()
    trainer.books.handle_agent_report(ended(0), now=2)
    assert trainer.books.done()


def test_silent_workers_are_warned_of_while_they_run(caplog: pytest.LogCaptureFixture) -> None:
    trainer = Trainer()
    for second in range(70):
        for rank in range(2):
            silent = agent_report(rank).model_copy(update={"processes": (), "life": f"{rank}"})
            trainer.books.handle_agent_report(silent, now=100 + second)
        trainer.books.advance(100 + second)
    [said] = caplog.messages
    assert "will not count as succeeded" in said


def trouble(reason: str = "CheckpointsNotWritten") -> Trouble:
    return Trouble(reason=reason, message=f"no room for {reason}")


def test_what_a_worker_cannot_write_is_a_problem_until_it_can() -> None:
    trainer = Trainer()
    trainer.send(0, Phase.READY, troubles=(trouble(), trouble("OfALaterRelease")))
    [problem] = trainer.books.problems.current()
    assert (problem.source, problem.reason) == ("worker-0", JobReason.CHECKPOINTS_NOT_WRITTEN)
    assert problem.message == "no room for CheckpointsNotWritten"
    trainer.send(0, Phase.READY, troubles=(trouble("StepLogNotWritten"),))
    [problem] = trainer.books.problems.current()
    assert problem.reason is JobReason.STEP_LOG_NOT_WRITTEN
    trainer.send(0, Phase.READY)
    assert trainer.books.problems.current() == ()


def test_a_worker_cannot_end_the_job_by_its_word() -> None:
    trainer = Trainer()
    trainer.send(0, Phase.READY, troubles=(trouble("SeparateCopies"),))
    assert trainer.books.problems.current() == ()


def test_what_a_worker_that_is_gone_could_not_write_is_forgotten() -> None:
    trainer = Trainer()
    trainer.send(0, Phase.READY, troubles=(trouble(),))
    trainer.books.advance(trainer.now + FORGET_SECONDS - 1)
    assert trainer.books.problems.current()
    trainer.books.advance(trainer.now + FORGET_SECONDS + 1)
    assert trainer.books.problems.current() == ()


def test_a_report_without_troubles_is_as_a_trainer_of_the_release_before_knows_it() -> None:
    report = SessionReport(
        member=MemberId(rank=0, incarnation=0, nonce="a"),
        phase=Phase.READY,
        address="a:1",
        data=DataSpec(dataset_size=10, global_batch=2, epochs=1),
    )
    sent = msgpack.unpackb(encode(report))
    assert "troubles" not in sent
    assert decode(SessionReport, msgpack.packb(sent)) == report
    told = report.model_copy(update={"troubles": (trouble(),)})
    assert decode(SessionReport, encode(told)) == told


def test_an_agent_of_the_release_before_knows_every_field_of_its_reply() -> None:
    trainer = Trainer()
    before = {"role": "worker", "rank": 0, "incarnation": 0, "version": 1}
    reply = trainer.books.handle_agent_report(
        decode(AgentReport, msgpack.packb(before)), trainer.now
    )
    assert set(msgpack.unpackb(encode(reply))) == {"trainer", "superseded", "hung_seconds"}
    refused = reply.model_copy(update={"refused": "SeparateCopies: ...", "undecided": True})
    assert decode(AgentReply, encode(refused)) == refused
