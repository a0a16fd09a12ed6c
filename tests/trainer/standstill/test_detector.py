"""Who stands still: named once looked at, never while steps come, taken back when they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.enums import OnHang
from penstock.trainer.standstill.detector import (
    FIRST_SECONDS,
    GRACE_SECONDS,
    LOOK_SECONDS,
    LOOKS,
    WORKS_SECONDS,
    Detector,
    Heard,
    causes_of,
)
from penstock.trainer.standstill.response import Hang, HangPolicy, Step, judge
from penstock.trainer.standstill.stack import Frame, Kind, Look

TICK = 0.25
LOCK = (Frame("/home/me/train.py", 7, "step"),)
SUM = (Frame("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 1, "w"),)


class Job:
    """Ranks that take their steps at given times, and agents that report once a second."""

    def __init__(self, ranks: int = 2) -> None:
        self.detector = Detector()
        self.now = 0.0
        self.last = [0.0] * ranks
        self.stacks: list[Callable[[], tuple[Frame, ...]]] = [lambda: SUM] * ranks
        self.answers = [True] * ranks
        self.states = ["S"] * ranks
        self.used = [0.0] * ranks
        """CPU seconds since its last step."""
        self.no_core = [0.0] * ranks
        """Of the time since its last step, the part that a rank waits for a core."""
        self._answered = [0] * ranks
        self.waiting: frozenset[int] | None = None

    def run(self, seconds: float, steps: Iterable[float] = (), stuck: bool = False) -> None:
        """``steps``: pauses between steps, which all ranks take at once."""
        pauses = iter(steps)
        until, due = self.now + seconds, self.now + next(pauses, float("inf"))
        while self.now < until:
            self.now += TICK
            while not stuck and due <= self.now:
                self.last = [due] * len(self.last)
                due += next(pauses, float("inf"))
            self._report()
            self.detector.advance(self.now, self.waiting)

    def _report(self) -> None:
        look = self.detector.look
        for rank, last in enumerate(self.last):
            if look and self.answers[rank] and self._answered[rank] != look:
                self._answered[rank] = look
                shown = {1: Look(self.states[rank], 0.0, self.stacks[rank]())}
                self.detector.show(rank, look, shown)
            if self.now % 1.0 < TICK or look:
                idle = self.now - last
                heard = Heard(idle, len(self.last), idle * self.no_core[rank], self.used[rank])
                self.detector.hear(rank, {1: heard}, self.now)

    @property
    def named(self) -> list[int]:
        return [one.rank for one in self.detector.standing]


def test_the_rank_that_others_wait_for_is_named_within_ten_seconds() -> None:
    job = Job(4)
    job.stacks[2] = lambda: LOCK
    job.run(30, steps=[1.0] * 60)
    job.last = [job.now] * 4
    job.run(1.0 + 10.0, stuck=True)
    assert job.named == [2]
    standing = job.detector.standing[0]
    assert (standing.kind, str(standing.place)) == (Kind.WAITS, "step (/home/me/train.py:7)")
    job.run(5, steps=[1.0] * 5)
    assert job.named == [], "it takes steps again"


def test_who_is_waited_for_and_shows_nothing_is_the_cause() -> None:
    job = Job(2)
    job.answers[1] = False
    job.run(30, steps=[1.0] * 30)
    job.run(20, stuck=True)
    assert job.named == [1]
    assert job.detector.standing[0].kind is Kind.UNKNOWN


def test_where_all_wait_for_each_other_all_are_named() -> None:
    job = Job(3)
    job.run(30, steps=[1.0] * 30)
    job.run(12, stuck=True)
    assert job.named == [0, 1, 2]


def test_while_a_group_is_formed_those_who_only_wait_for_others_are_not_named() -> None:
    job = Job(3)
    job.run(30, steps=[1.0] * 30)
    job.waiting = frozenset({0})
    job.run(60, stuck=True)
    assert job.named == [], "1 and 2 wait for a sum with one that is gone"
    job.stacks[1] = lambda: LOCK
    job.run(60, stuck=True)
    assert job.named == [1]


def test_an_evaluation_is_no_standstill() -> None:
    job = Job(2)
    line = [0]

    def works() -> tuple[Frame, ...]:
        line[0] += 1
        return (*LOCK, Frame("/home/me/train.py", line[0], "evaluate"))

    job.stacks[0] = works
    job.run(30, steps=[1.0] * 30)
    job.run(120, stuck=True)
    assert line[0] >= LOOKS
    assert job.named == []


def test_the_first_steps_have_time() -> None:
    job = Job(1)
    job.stacks[0] = lambda: LOCK
    job.run(3, steps=[1.0] * 2)
    job.run(FIRST_SECONDS - 10, stuck=True)
    assert job.detector.look == 0
    job.run(20 + LOOKS * LOOK_SECONDS, stuck=True)
    assert job.named == [0]


def test_a_pod_that_is_gone_stands_still_no_more() -> None:
    job = Job(2)
    job.stacks[1] = lambda: LOCK
    job.run(30, steps=[1.0] * 30)
    job.run(15, stuck=True)
    assert job.named == [1]
    job.detector.forget(1)
    assert job.named == []


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0.05, 12.0), min_size=40, max_size=80), st.integers(1, 4))
def test_nothing_is_asked_for_while_pauses_stay_within_what_was_usual(
    pauses: list[float], ranks: int
) -> None:
    known = [max(pauses)] * 6
    job = Job(ranks)
    job.run(sum(known) + sum(pauses), steps=[*known, *pauses, *known])
    assert job.named == []
    assert job.detector.look == 0


def test_patience_is_the_usual_pause_and_a_quarter_or_some_seconds() -> None:
    job = Job(1)
    job.stacks[0] = lambda: LOCK
    job.run(400, steps=[40.0] * 20)
    job.last = [job.now]
    job.run(40 + GRACE_SECONDS, stuck=True)
    assert job.detector.look == 0, "a quarter of forty seconds is more"
    job.run(10, stuck=True)
    assert job.detector.look or job.named == [0]


def test_of_processes_that_all_compute_those_elsewhere_are_the_cause() -> None:
    kinds = {(rank, 1): Kind.LOOPS for rank in range(4)}
    places = {(rank, 1): Frame("train.py", 30, "item") for rank in range(4)}
    places[3, 1] = Frame("train.py", 12, "spin")
    assert causes_of(kinds, places) == [(3, 1)]
    assert len(causes_of(kinds, {**places, (3, 1): places[0, 1]})) == 4


def test_of_one_beside_whom_another_works_that_is_said() -> None:
    job = Job(2)
    line = [0]

    def works() -> tuple[Frame, ...]:
        line[0] += 1
        return (*LOCK, Frame("/home/me/train.py", line[0], "download"))

    job.stacks[0] = lambda: LOCK
    job.run(30, steps=[1.0] * 30)
    job.run(12, stuck=True)
    assert [one.moves for one in job.detector.standing] == [""], "the other waits in a sum"
    job.stacks[1] = works
    job.detector.look_again(job.now)
    job.run(6, stuck=True)
    assert job.named == [0]
    assert "process 1 of worker-1 works" in job.detector.standing[0].moves


def test_an_evaluation_that_returns_to_the_same_places_has_two_minutes() -> None:
    job = Job(2)
    within = [0]

    def evaluates() -> tuple[Frame, ...]:
        within[0] += 1
        inner = (Frame("/home/me/model.py", 5, "forward"),) if within[0] % LOOKS == 1 else ()
        return (*inner, Frame("/home/me/train.py", 91, "evaluate"))

    for rank in range(2):
        job.stacks[rank], job.states[rank] = evaluates, "R"
    job.run(30, steps=[1.0] * 30)
    job.run(WORKS_SECONDS - 10, stuck=True)
    assert within[0] >= LOOKS
    assert job.named == []
    job.run(50, stuck=True)
    assert job.named == [0, 1], "it may be a loop that never ends"


def test_a_rank_without_a_core_is_not_named_and_nor_is_who_waits_for_it() -> None:
    job = Job(2)
    job.stacks[0] = lambda: LOCK
    job.run(30, steps=[1.0] * 30)
    job.no_core[0], job.states[0] = 0.9, "R"
    job.run(40, stuck=True)
    assert job.detector.look or job.detector._not_before > 0, "the other one was suspected"
    assert job.named == []
    job.run(60, stuck=True)
    assert job.named == [0], "with what it had of a core it would have taken a step"
    assert "s of it without a core" in str(job.detector.standing[0])


def test_a_loop_is_named_without_delay_though_it_has_seldom_a_core() -> None:
    job = Job(2)
    job.stacks[0] = lambda: LOCK
    job.run(30, steps=[1.0] * 30)
    job.no_core[0], job.states[0], job.used[0] = 0.8, "R", 1.5
    job.run(12, stuck=True)
    assert job.named == [0], "its steps took less CPU than it has had since"
    [standing] = job.detector.standing
    assert standing.queued == 0, "its waits for a core excuse it no more"
    assert standing.paused == standing.idle


@pytest.mark.parametrize(("used", "step"), [(1.5, Step.END), (0.0, Step.WAIT)])
def test_what_excuses_a_rank_from_being_named_excuses_it_from_being_ended(
    used: float, step: Step
) -> None:
    job = Job(2)
    job.stacks[0] = lambda: LOCK
    job.run(30, steps=[1.0] * 30)
    job.no_core[0], job.used[0] = 0.8, used
    job.run(80, stuck=True)
    [standing] = job.detector.standing
    policy = HangPolicy(OnHang.RESTART, after_seconds=standing.idle / 2)
    assert judge(Hang(standing), policy, standing.at).step is step


def test_a_rank_that_gets_a_core_again_later_is_named_soon_if_it_hangs() -> None:
    job = Job(2)
    job.stacks[0] = lambda: LOCK
    job.run(30, steps=[1.0] * 30)
    job.no_core[0] = 0.9
    job.run(12, stuck=True)
    assert job.named == []
    job.no_core[0] = 0.0
    job.run(GRACE_SECONDS + LOOKS * LOOK_SECONDS + 2, stuck=True)
    assert job.named == [0]
