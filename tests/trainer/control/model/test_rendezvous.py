"""Who trains together: membership decided from reports and time alone."""

from __future__ import annotations

import pytest

from penstock.job.protocol import (
    DataSpec,
    Directive,
    Group,
    MemberId,
    Phase,
    Restore,
    SessionReport,
)
from penstock.trainer.control.model.rendezvous import Rendezvous, Timing, waiting_ranks

DATA = DataSpec(dataset_size=100, global_batch=10, epochs=1)


class World:
    """A rendezvous and its members, driven by hand."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.rendezvous = Rendezvous(slots_per_step=12, timing=timing)
        self.now = 100.0
        self.reports: dict[int, SessionReport] = {}

    def send(self, rank: int, phase: Phase = Phase.READY, **fields: object) -> Directive:
        """A report of a rank, with what it said before and these changes."""
        before = self.reports.get(rank)
        if before is None or "incarnation" in fields:
            incarnation = int(str(fields.pop("incarnation", 0)))
            member = MemberId(rank=rank, incarnation=incarnation, nonce=f"{rank}.{incarnation}")
            before = SessionReport(member=member, phase=phase, address=f"h{rank}:1", data=DATA)
        self.reports[rank] = before.model_copy(update={"phase": phase, **fields})
        self.rendezvous.record(self.reports[rank], self.now)
        self.rendezvous.decide(self.now)
        return self.directive(rank)

    def directive(self, rank: int) -> Directive:
        return self.rendezvous.directive(self.reports[rank].member)[0]

    def group(self) -> Group:
        assert self.rendezvous.group is not None
        return self.rendezvous.group

    def ranks(self) -> list[int]:
        return [member.id.rank for member in self.group().members]

    def join_all(self, committed: int = 0) -> None:
        """Everyone who is called takes part in the group."""
        number = self.group().number
        for member in self.group().members:
            directive = self.send(
                member.id.rank,
                Phase.TRAINING,
                generation=number,
                group=self.group(),
                committed=committed,
            )
            assert directive is Directive.TRAIN

    def leave_all(self, committed: int, *ranks: int) -> None:
        for rank in ranks:
            self.send(rank, Phase.READY, generation=self.group().number, committed=committed)

    def wait(self, seconds: float, *alive: int) -> None:
        """Let time pass while some members go on reporting what they reported last."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for rank in alive:
                self.rendezvous.record(self.reports[rank], self.now)
            self.rendezvous.decide(self.now)


def training(*ranks: int, committed: int = 5) -> World:
    """A world in which these ranks train."""
    world = World()
    world.rendezvous.expect(ranks)
    for rank in ranks:
        world.send(rank)
    world.join_all()
    world.join_all(committed)
    return world


def test_a_first_group_waits_for_every_rank_that_has_a_pod() -> None:
    world = World()
    world.rendezvous.expect({0, 1})
    world.send(0)
    world.wait(5, 0)
    assert world.rendezvous.group is None
    world.send(1)
    assert world.ranks() == [0, 1]
    assert world.group().restore is Restore.FRESH
    assert sum(world.group().shares) == 12


def test_a_first_group_does_not_wait_for_ever() -> None:
    world = World(Timing(expected=10))
    world.rendezvous.expect({0, 1})
    world.send(0)
    world.wait(9.5, 0)
    assert world.rendezvous.group is None
    world.wait(1, 0)
    assert world.ranks() == [0]


def test_without_a_cluster_whoever_joins_within_a_moment_is_in_the_first_group() -> None:
    world = World(Timing(settle=1))
    world.send(3)
    world.send(1)
    assert world.rendezvous.group is None
    world.wait(1.5, 1, 3)
    assert world.ranks() == [1, 3]


def test_too_few_workers_wait_and_say_for_what() -> None:
    world = World()
    world.rendezvous.min_workers = 2
    world.send(0)
    world.wait(60, 0)
    assert world.rendezvous.group is None
    message = world.rendezvous.waiting_message(world.now)
    assert message == "waiting for workers: 1 of at least 2 are ready"


def test_a_newcomer_is_announced_and_the_group_trains_on_until_all_have_left() -> None:
    world = training(0, 1)
    world.rendezvous.expect({0, 1, 2})
    assert world.send(2) is Directive.WAIT
    assert world.directive(0) is Directive.REGROUP
    first = world.group().number
    world.leave_all(7, 0)
    assert world.group().number == first, "formed before all had left"
    world.leave_all(7, 1)
    assert world.group().number == first + 1
    assert world.ranks() == [0, 1, 2]
    assert world.group().restore is Restore.LIVE
    assert world.group().start_step == 7
    assert world.directive(2) is Directive.JOIN


def test_newcomers_who_come_together_join_together() -> None:
    world = training(0, 1)
    world.rendezvous.expect({0, 1, 2, 3})
    world.send(2)
    assert world.directive(0) is Directive.TRAIN, "did not wait for the other newcomer"
    world.send(3)
    assert world.directive(0) is Directive.REGROUP


def test_a_newcomer_waits_only_a_moment_for_others() -> None:
    world = training(0, 1)
    world.rendezvous.expect({0, 1, 2, 3})
    world.send(2)
    world.wait(1.5, 0, 1, 2)
    assert world.directive(0) is Directive.REGROUP


def test_survivors_form_a_group_as_soon_as_all_of_them_have_left() -> None:
    world = training(0, 1, 2)
    world.rendezvous.mark_ended(1, incarnation=0)
    world.rendezvous.decide(world.now)
    assert world.directive(0) is Directive.ABANDON
    first = world.group().number
    world.leave_all(5, 0)
    assert world.group().number == first, "did not wait for the other survivor"
    world.leave_all(5, 2)
    assert world.ranks() == [0, 2]


def test_the_most_advanced_member_is_the_source() -> None:
    world = training(0, 1, 2)
    world.rendezvous.mark_ended(0, incarnation=0)
    world.leave_all(5, 1)
    world.leave_all(6, 2)
    assert world.ranks() == [2, 1]
    assert world.group().start_step == 6


def test_a_silent_member_is_left_out_and_sooner_when_its_connection_ended() -> None:
    for lost, patience in ((False, 3.0), (True, 1.0)):
        world = training(0, 1)
        first = world.group().number
        gone = (world.reports[1].member,) if lost else ()
        number = world.group().number
        world.send(0, Phase.READY, generation=number, committed=5, lost=gone)
        world.wait(patience - 0.5, 0)
        assert world.group().number == first
        world.wait(1.0, 0)
        assert world.ranks() == [0], f"lost={lost}"


def test_a_member_that_only_computes_for_long_is_waited_for() -> None:
    world = training(0, 1)
    first = world.group().number
    world.send(0, Phase.READY, generation=first, committed=5)
    world.wait(15, 0, 1)  # rank 1 reports, but does not come to its step's end
    assert world.group().number == first
    world.leave_all(5, 1)
    assert world.ranks() == [0, 1]


def test_a_member_that_is_cut_off_from_the_trainer_stays_while_the_steps_advance() -> None:
    world = training(0, 1)
    for step in range(6, 60):
        world.now += 0.5
        world.send(0, Phase.TRAINING, committed=step)
    assert world.rendezvous.training, "rank 1 was given up although the group advances"


def test_a_member_that_stands_still_is_given_up_and_may_come_back() -> None:
    world = training(0, 1)
    world.wait(11, 0)
    assert world.directive(0) is Directive.ABANDON
    world.leave_all(5, 0)
    assert world.ranks() == [0]
    world.join_all(5)
    old = world.send(1, Phase.TRAINING)
    assert old is Directive.ABANDON
    world.send(1, Phase.READY, committed=5)
    world.wait(2, 0, 1)
    assert world.directive(0) is Directive.REGROUP


def test_a_drained_member_leaves_the_others_behind() -> None:
    world = training(0, 1, 2)
    world.rendezvous.expect({0, 1})
    world.send(2, Phase.LEAVING)
    world.leave_all(6, 0, 1)
    assert world.ranks() == [0, 1]
    assert world.directive(2) is Directive.WAIT


def test_a_newer_incarnation_replaces_the_older_which_is_refused() -> None:
    world = training(0, 1)
    old = world.reports[1]
    world.send(1, incarnation=1)
    assert not world.rendezvous.record(old, world.now)
    assert world.rendezvous.directive(old.member)[0] is Directive.REFUSED
    assert world.directive(0) is Directive.ABANDON, "its process is gone, so the group is broken"


def test_a_restarted_process_of_the_same_incarnation_replaces_the_earlier_one() -> None:
    world = training(0, 1)
    old = world.reports[1]
    again = old.member.model_copy(update={"nonce": "again"})
    world.reports[1] = old.model_copy(update={"member": again, "phase": Phase.READY})
    assert world.rendezvous.record(world.reports[1], world.now)
    assert not world.rendezvous.record(old, world.now)


def test_a_new_trainer_adopts_the_group_that_its_members_report() -> None:
    before = training(0, 1, committed=50)
    after = World()
    after.reports = dict(before.reports)
    after.rendezvous.recovering_until = after.now + 5
    after.rendezvous.record(after.reports[0], after.now)
    after.rendezvous.decide(after.now)
    assert after.group() == before.group()
    assert after.directive(0) is Directive.TRAIN
    after.wait(2, 0)
    assert after.rendezvous.training, "the other member was given no time to report"


def test_a_new_trainer_forms_no_group_from_nothing_before_survivors_could_report() -> None:
    before = training(0, 1, committed=50)
    after = World()
    after.rendezvous.recovering_until = after.now + 5
    after.send(7)  # a newcomer is the first to report
    after.wait(3, 7)
    assert after.rendezvous.group is None
    after.reports[0] = before.reports[0].model_copy(update={"phase": Phase.READY})
    after.reports[1] = before.reports[1].model_copy(update={"phase": Phase.READY})
    after.wait(3, 0, 1, 7)
    assert after.group().restore is Restore.LIVE
    assert after.group().start_step == 50
    assert after.group().number > before.group().number


def test_when_all_are_lost_the_newest_checkpoint_counts() -> None:
    world = training(0, 1, committed=50)
    for rank in (0, 1):
        world.rendezvous.mark_ended(rank, incarnation=0)
    world.send(0, incarnation=1, checkpoint=20)
    assert world.group().restore is Restore.CHECKPOINT
    assert world.group().start_step == 20


def test_when_all_are_lost_without_a_checkpoint_the_job_begins_anew() -> None:
    world = training(0, 1, committed=50)
    for rank in (0, 1):
        world.rendezvous.mark_ended(rank, incarnation=0)
    world.send(1, incarnation=1)
    assert world.group().restore is Restore.FRESH
    assert world.group().start_step == 0


def test_a_trainer_that_stood_still_does_not_take_its_own_absence_for_silence() -> None:
    world = training(0, 1)
    world.rendezvous.tick(world.now)
    world.now += 30
    world.rendezvous.decide(world.now)
    assert world.rendezvous.training


def test_the_end_of_the_job_is_no_broken_group() -> None:
    world = training(0, 1)
    for rank in (0, 1):
        world.send(rank, Phase.FINISHED, committed=10)
    world.wait(60)
    number = world.group().number
    world.send(0, Phase.CLOSED)
    assert world.group().number == number
    assert world.rendezvous.members.any_closed


@pytest.mark.parametrize("joined", [1, 2])
def test_a_group_that_does_not_come_about_is_formed_again(joined: int) -> None:
    world = World()
    world.rendezvous.expect({0, 1, 2})
    for rank in range(3):
        world.send(rank)
    first = world.group().number
    for rank in range(joined):
        world.send(rank, Phase.TRAINING, generation=first, group=world.group(), committed=0)
    world.send(2, Phase.READY, generation=first)  # it could not connect
    for rank in range(3):
        world.send(rank, Phase.READY, generation=first)
    assert world.group().number == first + 1


def test_who_stays_in_a_broken_group_waits_for_none_and_is_hung_in_the_end() -> None:
    world = training(0, 1, 2)
    rendezvous = world.rendezvous
    assert waiting_ranks(rendezvous) is None
    rendezvous.mark_ended(0, 0)
    world.wait(1, 1, 2)
    assert not rendezvous.training
    assert waiting_ranks(rendezvous) == frozenset(), "both are told to leave, and have not"
    world.leave_all(5, 2)
    assert waiting_ranks(rendezvous) == {2}
    rendezvous.min_workers = 2
    world.wait(60, 1, 2)
    assert waiting_ranks(rendezvous) == {2}
    assert set(rendezvous.find_hung(world.now, patience=30.0)) == {1}
    assert rendezvous.find_hung(world.now, patience=90.0) == {}
    rendezvous.mark_ended(1, 0)
    assert rendezvous.find_hung(world.now, patience=30.0) == {}, "another program has its rank"
