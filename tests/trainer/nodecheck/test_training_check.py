"""Machines that become slow while a job trains are named after some rounds, and nobody else is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.nodecheck.check import Verdict
from penstock.trainer.nodecheck.cohort import PodChecks
from penstock.trainer.nodecheck.messages import StepMeasured
from penstock.trainer.nodecheck.outliers import Speed
from penstock.trainer.nodecheck.schedule import pairs
from penstock.trainer.nodecheck.training_check import LEAST_ROUNDS, Checked, TrainingCheck

NONE: Mapping[int, float] = {}


def measured(
    rank: int,
    step: int,
    partner: int | None = None,
    *,
    compute: float = 1e9,
    link: float | None = 1e8,
    members: int = 4,
    group: int = 1,
    incarnation: int = 0,
) -> StepMeasured:
    return StepMeasured(
        rank=rank,
        incarnation=incarnation,
        node=f"n{rank}",
        hardware="a",
        group=group,
        step=step,
        members=members,
        partner="" if partner is None else f"worker-{partner}.0",
        compute=compute,
        memory=1e9,
        link=link if partner is not None else None,
        failed=partner is not None and link is None,
    )


def rounds(
    check: TrainingCheck,
    steps: Collection[int],
    slow: Mapping[int, float] = NONE,
    failing: Collection[int] = (),
    size: int = 4,
) -> list[Checked]:
    """What was found in rounds after these steps."""
    found = []
    for turn, step in enumerate(steps):
        for rank, partner in pairs(range(size), turn):
            broken = rank in failing or partner in failing
            found += check.hear(
                measured(
                    rank,
                    step,
                    partner,
                    compute=1e9 / slow.get(rank, 1.0),
                    link=None if broken else 1e8,
                    members=size,
                ),
                float(step),
            )
    return found


def test_a_machine_that_is_slow_is_named_by_its_node_and_what_is_slow() -> None:
    check = TrainingCheck()
    assert rounds(check, range(1, LEAST_ROUNDS), slow={2: 4.0}) == []
    found = rounds(check, [LEAST_ROUNDS], slow={2: 4.0})
    [bad] = [one for one in found if one.is_bad]
    assert (bad.measured.node, bad.finding.verdict) == ("n2", Verdict.SLOW)
    assert bad.finding.what is Speed.COMPUTE
    assert 3.5 < bad.finding.ratio < 4.5
    assert {one.finding.verdict for one in found if one is not bad} == {Verdict.GOOD}


def test_a_machine_whose_link_fails_is_named_and_its_partners_are_not() -> None:
    found = rounds(TrainingCheck(), range(1, 6), failing=[3], size=6)
    assert {one.measured.node for one in found if one.is_bad} == {"n3"}
    assert {one.finding.verdict for one in found if one.is_bad} == {Verdict.FAILING}


def test_one_bad_moment_is_no_verdict() -> None:
    check = TrainingCheck()
    rounds(check, [1, 2])
    found = rounds(check, [3], slow={1: 9.0}) + rounds(check, [4, 5, 6])
    assert not any(one.is_bad for one in found)


def test_nobody_is_named_where_all_are_slower_than_they_were() -> None:
    for size in (2, 4):
        check = TrainingCheck()
        rounds(check, [1], size=size)
        everybody = dict.fromkeys(range(size), 6.0)
        found = rounds(check, range(2, 9), slow=everybody, size=size)
        assert not any(one.is_bad for one in found)


def test_of_two_the_slower_one_is_named() -> None:
    found = rounds(TrainingCheck(), range(1, 6), slow={1: 5.0}, size=2)
    assert {one.measured.node for one in found if one.is_bad} == {"n1"}


def test_what_is_good_is_said_once_and_what_is_bad_each_time() -> None:
    check = TrainingCheck()
    rounds(check, range(1, 6), slow={0: 5.0})
    found = rounds(check, [6], slow={0: 5.0})
    assert [one.measured.node for one in found] == ["n0"]


def test_a_machine_that_was_bad_is_said_to_be_good_again() -> None:
    check = TrainingCheck()
    rounds(check, range(1, 6), slow={0: 5.0})
    found = rounds(check, range(6, 12))
    assert [one.finding.verdict for one in found if one.measured.node == "n0"][-1] is Verdict.GOOD


def test_a_round_that_nobody_ends_is_judged_with_the_next_one() -> None:
    check = TrainingCheck()
    found = []
    for step in range(1, 8):
        for rank in range(3):  # of four: the last one is never heard
            found += check.hear(measured(rank, step, members=4), float(step))
    assert {one.measured.node for one in found} == {"n0", "n1", "n2"}


def test_what_comes_late_or_twice_is_of_no_use() -> None:
    check = TrainingCheck()
    rounds(check, range(1, 6))
    assert check.hear(measured(0, 3, compute=1.0), 9.0) == []
    assert check.hear(measured(0, 5, compute=1.0), 9.0) == []


@given(
    st.lists(
        st.builds(
            measured,
            st.integers(0, 5),
            st.integers(0, 9),
            st.none() | st.integers(0, 5),
            compute=st.floats(1.0, 1e9),
            link=st.none() | st.floats(1.0, 1e9),
            members=st.integers(1, 6),
            group=st.integers(0, 3),
            incarnation=st.integers(0, 1),
        ),
        max_size=60,
    )
)
def test_whatever_members_say_it_is_taken(said: list[StepMeasured]) -> None:
    check = TrainingCheck()
    for now, one in enumerate(said):
        for found in check.hear(one, float(now)):
            assert found.finding.verdict is not Verdict.UNKNOWN


def test_nobody_is_replaced_for_it() -> None:
    checks = PodChecks()
    for step in range(1, LEAST_ROUNDS + 1):
        for rank, partner in pairs(range(4), step):
            speed = 1e8 if rank == 1 else 1e9
            checks.hear_step(measured(rank, step, partner, compute=speed), float(step))
    found = {one.node: one for one in checks.take_found()}
    assert found["n1"].finding.verdict is Verdict.SLOW
    assert "compute" in found["n1"].why
    assert not any(one.replaced for one in found.values())
    assert all(one.measured is not None for one in found.values())
