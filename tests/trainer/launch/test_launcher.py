"""What an agent does with its processes, decided from events and time alone."""

from __future__ import annotations

import signal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.job.protocol import Phase
from penstock.trainer.launch.launcher import (
    BROKEN_SECONDS,
    LEAVE_SECONDS,
    VERDICT_SECONDS,
    Blamed,
    Called,
    Deserted,
    Dismissed,
    Ended,
    Event,
    Launcher,
    Order,
    Released,
    Restarted,
    Send,
    Signalled,
    Stage,
    Start,
    Ticked,
    Unstartable,
    step,
)

TERM, KILL, INT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT


class Pod:
    """A launcher and a clock."""

    def __init__(self, processes: int = 2, *, alone: bool = False) -> None:
        self.state = Launcher(processes, grace_seconds=25.0, alone=alone)
        self.now = 100.0

    def tell(self, *events: Event) -> list[Order]:
        """What is ordered for these events."""
        orders: list[Order] = []
        for event in events:
            self.state, more = step(self.state, event, self.now)
            orders += more
        return orders

    def wait(self, seconds: float) -> list[Order]:
        self.now += seconds
        return self.tell(Ticked())


def training(processes: int = 2, *, alone: bool = False) -> Pod:
    pod = Pod(processes, alone=alone)
    assert pod.tell(Called(1)) == [Start(1)]
    return pod


def test_a_world_is_started_once() -> None:
    pod = training()
    assert pod.tell(Called(1), Called(2)) == []
    assert pod.state.phase is Phase.TRAINING


def test_all_that_end_well_have_finished() -> None:
    pod = training()
    pod.tell(Ended(1, 0))
    assert pod.state.exit_code is None
    pod.tell(Ended(0, 0))
    assert (pod.state.phase, pod.state.exit_code) == (Phase.FINISHED, 0)


@pytest.mark.parametrize(("whole", "seconds"), [(True, 25.0), (False, BROKEN_SECONDS)])
def test_a_world_that_ends_is_left_and_the_next_one_awaited(whole: bool, seconds: float) -> None:
    pod = training()
    assert pod.tell(Dismissed(whole), Dismissed(False)) == [Send(TERM)]
    assert pod.wait(seconds - 0.1) == []
    pod.tell(Ended(0, 143))
    assert pod.state.phase is Phase.TRAINING, "not all have left"
    assert pod.wait(0.2) == [Send(KILL)]
    pod.tell(Ended(1, 137))
    assert pod.state.phase is Phase.READY
    assert pod.tell(Called(2)) == [Start(2)]


def test_a_long_grace_period_does_not_hold_up_the_others() -> None:
    pod = training()
    pod.state, _ = step(Launcher(2, grace_seconds=3600.0), Called(1), pod.now)
    pod.tell(Dismissed(whole=True))
    assert pod.wait(LEAVE_SECONDS) == [Send(KILL)]


def test_what_fails_because_a_peer_has_gone_is_no_failure_of_this_pod() -> None:
    pod = training()
    assert pod.tell(Ended(1, 1)) == [Send(TERM)]
    assert pod.state.phase is Phase.FAILED
    pod.tell(Dismissed(whole=False), Ended(0, 143))
    assert (pod.state.phase, pod.state.exit_code) == (Phase.READY, None)


def test_an_own_failure_ends_the_agent_with_the_code_of_the_first_rank_that_failed() -> None:
    pod = training(3)
    pod.tell(Ended(1, 17), Ended(0, 1), Blamed())
    assert pod.state.exit_code is None, "a process still runs"
    pod.tell(Ended(2, 143))
    assert pod.state.exit_code == 17
    assert pod.state.failure == (1, 17)


def test_alone_a_failure_is_ones_own() -> None:
    pod = training(alone=True)
    assert pod.tell(Ended(1, 5)) == [Send(TERM)]
    pod.tell(Ended(0, 143))
    assert pod.state.exit_code == 5


def test_without_the_trainers_word_a_failure_is_ones_own_after_a_while() -> None:
    pod = training(1)
    pod.tell(Ended(0, 3))
    pod.wait(VERDICT_SECONDS - 1)
    assert pod.state.exit_code is None
    pod.wait(1)
    assert pod.state.exit_code == 3


def test_the_first_word_about_a_failure_stands() -> None:
    pod = training()
    pod.tell(Ended(1, 1), Blamed(), Dismissed(whole=False), Ended(0, 143))
    assert pod.state.exit_code == 1


@pytest.mark.parametrize(("codes", "code"), [((143, 143), 143), ((143, 1), 143), ((0, 0), 0)])
def test_a_drained_pod_has_not_failed(codes: tuple[int, int], code: int) -> None:
    pod = training()
    assert pod.tell(Signalled(TERM)) == [Send(TERM)]
    assert pod.state.phase is Phase.LEAVING
    pod.tell(*[Ended(local_rank, each) for local_rank, each in enumerate(codes)])
    assert pod.state.exit_code == code


def test_a_pod_that_is_drained_while_its_failure_is_looked_into_has_not_failed() -> None:
    pod = training(1)
    pod.tell(Ended(0, 1), Signalled(TERM))
    assert pod.state.exit_code == 143


def test_who_waits_leaves_at_once() -> None:
    pod = Pod()
    pod.tell(Signalled(TERM))
    assert pod.state.exit_code == 143


def test_ctrl_c_is_passed_on_each_time_and_the_programs_code_counts() -> None:
    pod = training(1)
    assert pod.tell(Signalled(INT), Signalled(INT)) == [Send(INT), Send(INT)]
    pod.tell(Ended(0, 130))
    assert pod.state.exit_code == 130


def test_who_comes_when_all_is_trained_ends_well() -> None:
    pod = Pod()
    pod.tell(Released())
    assert pod.state.exit_code == 0


def test_a_world_outlives_its_trainer_and_is_the_last_one() -> None:
    pod = training()
    assert pod.tell(Deserted()) == []
    assert pod.state.phase is Phase.TRAINING
    pod.tell(Ended(0, 0), Ended(1, 0))
    assert pod.state.exit_code == 0
    waiting = Pod()
    waiting.tell(Deserted())
    assert waiting.state.exit_code == 1


def test_a_program_that_cannot_be_started_ends_the_agent() -> None:
    pod = training()
    pod.tell(Unstartable(127))
    assert pod.state.exit_code == 127


def test_processes_that_hang_are_killed_and_wait_for_the_next_world() -> None:
    pod = Pod()
    pod.tell(Called(1))
    assert pod.tell(Restarted()) == [Send(KILL)]
    assert pod.tell(Ended(0, 137), Ended(1, 137)) == []
    assert (pod.state.phase, pod.state.exit_code) == (Phase.READY, None)
    assert pod.tell(Called(2)) == [Start(2)]


def test_processes_that_hang_alone_have_no_other_world() -> None:
    pod = Pod(alone=True)
    pod.tell(Called(1))
    assert pod.tell(Restarted()) == []
    assert pod.state.stage is Stage.RUNNING


class Lives(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.pod = Pod(3)
        self.live: set[int] = set()
        self.drained = False
        self.group = 0

    def tell(self, event: Event) -> None:
        before = self.pod.state
        orders = self.pod.tell(event)
        for order in orders:
            if isinstance(order, Start):
                assert not self.live, "a world begins beside another one"
                assert not self.drained
                self.live = {0, 1, 2}
            elif order.number is KILL:
                assert before.running
        assert self.pod.state.running == self.live

    @rule(new=st.booleans())
    def call(self, new: bool) -> None:
        self.group += new
        self.tell(Called(self.group))

    @rule(whole=st.booleans())
    def dismiss(self, whole: bool) -> None:
        self.tell(Dismissed(whole))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), code=st.sampled_from([0, 1, 143, 137]))
    def end(self, data: st.DataObject, code: int) -> None:
        local_rank = data.draw(st.sampled_from(sorted(self.live)))
        self.live.discard(local_rank)
        self.tell(Ended(local_rank, code))

    @rule(event=st.sampled_from([Blamed(), Released(), Deserted(), Restarted()]))
    def hear(self, event: Event) -> None:
        self.tell(event)

    @rule(number=st.sampled_from([TERM, INT, KILL]))
    def drain(self, number: signal.Signals) -> None:
        self.drained = True
        self.tell(Signalled(number))

    @rule(seconds=st.sampled_from([0.5, 6.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.pod.now += seconds
        self.tell(Ticked())

    @invariant()
    def ends_with_its_processes(self) -> None:
        state = self.pod.state
        if state.exit_code is not None:
            assert not state.running
        elif state.stage in (Stage.RUNNING, Stage.LEAVING, Stage.ENDING):
            assert state.running, "nothing runs, and nothing follows"
        if state.stage is Stage.WAITING:
            assert not state.running


TestLives = Lives.TestCase
