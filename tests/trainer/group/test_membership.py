"""A session's place in a group: what may be committed, and what must be done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from penstock.job.protocol import (
    DataSpec,
    Directive,
    Group,
    GroupMember,
    MemberId,
    Phase,
    Restore,
    SessionReply,
    SessionReport,
)
from penstock.trainer.group.collective import Gradients
from penstock.trainer.group.group_channels import RestoreError, SessionError
from penstock.trainer.group.membership import Membership
from penstock.trainer.group.regrouping import MAX_BREAKS
from penstock.trainer.group.state_codec import PackedState
from penstock.trainer.group.step_barrier import GroupBrokenError, GroupEndedError, Listener
from penstock.trainer.group.trainer_connection import Orders

MEMBER = MemberId(rank=0, incarnation=0, nonce="n")


class FakeLink:
    """A trainer that answers every report with the same group and a directive that tests set."""

    def __init__(self, address: str) -> None:
        self.report = SessionReport(
            member=MEMBER,
            phase=Phase.READY,
            address=address,
            data=DataSpec(dataset_size=8, global_batch=4, epochs=1),
        )
        self.group = Group(
            number=1,
            members=(GroupMember(id=MEMBER, address=address),),
            source=0,
            start_step=0,
            restore=Restore.LIVE,
            shares=(2,),
        )
        self.directive = Directive.JOIN
        self.lease_stop_step = 10

    @property
    def orders(self) -> Orders:
        reply = SessionReply(
            trainer="t",
            revision=1,
            directive=self.directive,
            group=self.group,
            slots_per_step=2,
            lease_seconds=20,
            lease_stop_step=self.lease_stop_step,
            shares=(2,),
        )
        return Orders(self.report, reply)

    def publish(self, **changes: object) -> None:
        self.report = self.report.model_copy(update=changes)

    def note(self, **changes: object) -> None:
        self.publish(**changes)

    def wait(self, ready: Callable[[Orders], bool], timeout: float) -> Orders | None:
        return self.orders if ready(self.orders) else None


class Holder:
    """A model that is never transferred."""

    def restore_checkpoint(self, step: int) -> None:
        raise AssertionError

    def export_state(self) -> PackedState:
        raise AssertionError

    def import_state(self, header: bytes, parts: list[torch.Tensor]) -> None:
        raise AssertionError


@pytest.fixture
def joined() -> Iterator[tuple[Membership, FakeLink]]:
    listener = Listener("127.0.0.1")
    link = FakeLink(listener.address)
    # A fake of the link.
    membership = Membership(link, listener, MEMBER, "127.0.0.1", "t")  # type: ignore[arg-type]
    gradients = Gradients(torch.nn.Linear(1, 1))
    assert membership.join(Holder(), lambda: 0, gradients, lambda: False)
    link.directive = Directive.TRAIN
    yield membership, link
    membership.leave()
    listener.close()


class DamagedHolder(Holder):
    """What it announced, step 7, is damaged; it has step 5."""

    def restore_checkpoint(self, step: int) -> None:
        if step != 5:
            raise RestoreError(step, 5)


def test_who_announced_a_damaged_checkpoint_says_what_it_has_and_is_called_again() -> None:
    listener = Listener("127.0.0.1")
    link = FakeLink(listener.address)
    link.publish(checkpoint=7)

    def called() -> Group:
        step = link.report.checkpoint or 0
        return link.group.model_copy(
            update={"start_step": step, "restore": Restore.CHECKPOINT, "number": 8 - step}
        )

    asked: list[int | None] = []
    plain = link.publish

    def publish(**changes: object) -> None:
        plain(**changes)
        asked.append(link.report.checkpoint)
        link.group = called()

    link.publish = publish  # type: ignore[method-assign]  # the trainer hears of it
    # A fake of the link.
    membership = Membership(link, listener, MEMBER, "127.0.0.1", "t")  # type: ignore[arg-type]
    gradients = Gradients(torch.nn.Linear(1, 1))
    try:
        assert membership.join(DamagedHolder(), lambda: None, gradients, lambda: False)
        assert asked[0] == 7
        assert asked[-1] == 5
        assert link.report.committed == 5
    finally:
        membership.leave()
        listener.close()


def consumed(*slots: int) -> list[tuple[int, bytes]]:
    return [(slot, b"") for slot in slots]


def test_a_whole_step_is_agreed_on(joined: tuple[Membership, FakeLink]) -> None:
    membership, _ = joined
    verdict = membership.agree(0, [0, 1], consumed(0, 1), leave=False)
    assert not verdict.regroup
    assert [slot for slot, _ in verdict.consumed] == [0, 1]


@pytest.mark.parametrize("slots", [(), (0,), (0, 1, 1), (0, 2)])
def test_a_step_of_which_a_slot_is_missing_or_double_is_never_committed(
    joined: tuple[Membership, FakeLink], slots: tuple[int, ...]
) -> None:
    membership, _ = joined
    with pytest.raises(GroupBrokenError, match=r"step 0 has slots \[0, 1\]"):
        membership.agree(0, [0, 1], consumed(*slots), leave=False)


def test_a_group_that_was_ended_stays_ended_whatever_another_trainer_says(
    joined: tuple[Membership, FakeLink],
) -> None:
    membership, link = joined
    link.directive = Directive.ABANDON
    assert membership.interrupted()
    link.directive = Directive.TRAIN
    assert membership.interrupted()
    with pytest.raises(GroupBrokenError, match="the trainer ended this group"):
        membership.agree(0, [0, 1], consumed(0, 1), leave=False)


def test_an_answer_to_an_older_report_ends_nothing(joined: tuple[Membership, FakeLink]) -> None:
    membership, link = joined
    link.directive = Directive.ABANDON
    link.report = link.report.model_copy(update={"generation": 0})
    assert not membership.interrupted()


@pytest.mark.parametrize(
    ("directive", "drain"), [(Directive.REGROUP, False), (Directive.TRAIN, True)]
)
def test_who_is_called_away_or_drains_takes_all_along_at_the_end_of_the_step(
    joined: tuple[Membership, FakeLink], directive: Directive, drain: bool
) -> None:
    membership, link = joined
    link.directive = directive
    assert membership.agree(0, [0, 1], consumed(0, 1), leave=drain).regroup


def test_a_step_beyond_the_lease_waits_until_the_trainer_extends_it(
    joined: tuple[Membership, FakeLink],
) -> None:
    membership, link = joined
    link.directive = Directive.TRAIN
    waits = 0

    def wait(ready: Callable[[Orders], bool], timeout: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            link.lease_stop_step = 20

    link.wait = wait  # type: ignore[method-assign]  # stands in for the link's wait
    membership.agree(10, [0, 1], consumed(0, 1), leave=False)
    assert waits == 3
    assert link.report.committed == 10, "the trainer was not told how far we are"


def test_groups_that_break_without_a_step_in_between_are_given_up(
    joined: tuple[Membership, FakeLink],
) -> None:
    membership, link = joined
    gradients = Gradients(torch.nn.Linear(1, 1))
    for _ in range(MAX_BREAKS - 1):
        membership.leave(GroupBrokenError("no way"))
    membership.note_committed()  # a step, after which the count begins anew
    for _ in range(MAX_BREAKS):
        membership.leave(GroupBrokenError("no way"))
    link.directive = Directive.JOIN
    with pytest.raises(SessionError, match=f"broke {MAX_BREAKS} times in a row.*no way"):
        membership.join(Holder(), lambda: 0, gradients, lambda: False)


def test_groups_that_the_trainer_ended_do_not_count(joined: tuple[Membership, FakeLink]) -> None:
    membership, link = joined
    for _ in range(MAX_BREAKS):
        membership.leave(GroupEndedError("the trainer ended this group"))
    link.directive = Directive.JOIN
    link.group = link.group.model_copy(update={"number": 2})
    gradients = Gradients(torch.nn.Linear(1, 1))
    assert membership.join(Holder(), lambda: 0, gradients, lambda: False)


def test_who_drains_does_not_wait_for_the_next_group(joined: tuple[Membership, FakeLink]) -> None:
    membership, _ = joined
    for _ in range(MAX_BREAKS - 1):
        membership.leave(GroupBrokenError("no way"))
    gradients = Gradients(torch.nn.Linear(1, 1))
    assert not membership.join(Holder(), lambda: 0, gradients, lambda: True)
