"""Sums that the host waits for: what is done when they end, fail, hang, or are called off.

No test here has NCCL, which takes two GPUs to lose a member in: its process group is stood in for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.group.collective_errors import Cause, cause_of
from penstock.trainer.group.nccl_sums import (
    ENVIRONMENT,
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Action,
    Look,
    NcclSums,
    environment,
    judge,
    pause_seconds,
)
from penstock.trainer.group.step_barrier import GroupBrokenError, GroupEndedError

LIMIT = 10.0
SECONDS = st.floats(0, 1000)


class FakeTime:
    """A clock that goes on by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class FakeWork:
    """Is done at a time, or never; may have failed then."""

    def __init__(self, group: FakeGroup, done_at: float, error: str) -> None:
        self._group = group
        self._done_at = done_at
        self._error = error
        self.waited = False

    def is_completed(self) -> bool:
        return self._group.time.now >= self._done_at

    def wait(self) -> None:
        assert self.is_completed(), "the host would stand still"
        self.waited = True
        if self._error:
            raise RuntimeError(self._error)


class FakeGroup:
    """A process group whose sums end at the given times."""

    def __init__(self, *done_at: float, error: str = "") -> None:
        self.time = FakeTime()
        self.works: list[FakeWork] = []
        self.aborts = 0
        self._ends: Iterator[float] = iter(done_at)
        self._error = error

    def allreduce(self, tensors: list[torch.Tensor]) -> FakeWork:
        self.works.append(FakeWork(self, next(self._ends), self._error))
        return self.works[-1]

    def abort(self) -> None:
        self.aborts += 1


def sums_of(group: FakeGroup, limit: float = LIMIT) -> NcclSums:
    return NcclSums(group, limit, clock=group.time.clock, sleep=group.time.sleep)


def tensors(count: int) -> list[torch.Tensor]:
    return [torch.ones(1) for _ in range(count)]


@given(st.lists(st.floats(0, LIMIT * 0.9), min_size=1, max_size=3))
def test_it_returns_when_all_sums_are_done_and_soon_after(ends: list[float]) -> None:
    group = FakeGroup(*ends)
    sums_of(group).sum(tensors(len(ends)), lambda: False)
    assert all(work.waited for work in group.works)
    assert group.time.now >= max(ends)
    assert group.time.now <= max(ends) + MAX_PAUSE_SECONDS
    assert group.aborts == 0


def test_what_nccl_says_is_raised_and_not_taken_for_a_sum() -> None:
    group = FakeGroup(0.5, error="NCCL error: remote process exited or there was a network error")
    with pytest.raises(RuntimeError) as caught:
        sums_of(group).sum(tensors(1), lambda: False)
    assert cause_of(caught.value) is Cause.LOST_MEMBER


def test_a_sum_that_hangs_is_aborted_when_its_time_is_over() -> None:
    group = FakeGroup(0.1, float("inf"))
    sums = sums_of(group)
    with pytest.raises(GroupBrokenError, match="a member was lost in a sum: not done after 10 s"):
        sums.sum(tensors(2), lambda: False)
    assert group.time.now == pytest.approx(LIMIT, abs=2 * MAX_PAUSE_SECONDS)
    assert not any(work.waited for work in group.works)
    sums.close()
    assert group.aborts == 1, "a communicator is aborted once"


def test_a_group_that_the_trainer_ends_is_not_waited_for() -> None:
    group = FakeGroup(float("inf"))
    with pytest.raises(GroupEndedError, match="the trainer ended this group"):
        sums_of(group).sum(tensors(1), lambda: group.time.now > 2)
    assert group.time.now < 2.1
    assert group.aborts == 1


def test_an_abort_that_hangs_holds_nobody_for_ever() -> None:
    group = FakeGroup(float("inf"))
    release = threading.Event()
    group.abort = release.wait  # type: ignore[assignment]  # it hangs, as in some versions of NCCL
    sums = NcclSums(
        group, LIMIT, abort_seconds=0.05, clock=group.time.clock, sleep=group.time.sleep
    )
    with pytest.raises(RuntimeError, match="NCCL hangs: no abort within 0 s") as caught:
        sums.sum(tensors(1), lambda: False)
    assert cause_of(caught.value) is Cause.CONFIGURATION, "this process cannot go on"
    release.set()


@given(st.booleans(), st.booleans(), SECONDS, SECONDS)
def test_a_sum_that_is_done_counts_and_nothing_else_is_waited_for_beyond_its_time(
    completed: bool, interrupted: bool, seconds: float, limit: float
) -> None:
    action = judge(Look(completed, interrupted, seconds), limit)
    assert (action is Action.COLLECT) == completed
    assert (action is Action.LOOK_AGAIN) == (not completed and not interrupted and seconds < limit)
    assert (action is Action.GIVE_UP_ENDED) == (interrupted and not completed)


@given(SECONDS)
def test_pauses_are_short_and_grow_with_the_wait(seconds: float) -> None:
    pause = pause_seconds(seconds)
    assert FIRST_PAUSE_SECONDS <= pause <= MAX_PAUSE_SECONDS
    assert pause_seconds(2 * seconds) >= pause


def test_the_environment_is_set_while_a_group_is_made_and_is_then_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = sorted(ENVIRONMENT)
    monkeypatch.setenv(own, "3")
    monkeypatch.delenv(other, raising=False)
    with environment():
        assert {name: os.environ[name] for name in ENVIRONMENT} == ENVIRONMENT
    assert os.environ[own] == "3"
    assert other not in os.environ


@pytest.mark.gpu
def test_a_group_of_one_sums_by_nccl_and_lets_go() -> None:
    from penstock.trainer.group.backend_choice import Backend
    from penstock.trainer.group.collective import Collective, serve_store

    store = serve_store("127.0.0.1", 1)
    collective = Collective(store, "127.0.0.1", 0, 1, backend=Backend.NCCL, timeout_seconds=20)
    gradients = torch.ones(1000, device="cuda")
    for _ in range(3):
        collective.sum([gradients])
    assert gradients.sum().item() == 1000
    collective.close()
