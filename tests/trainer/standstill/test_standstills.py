"""What the trainer makes of its agents' reports: a look is asked for, and the worker is named."""

from __future__ import annotations

from penstock.base.enums import OnHang
from penstock.crds.conditions import JobReason
from penstock.job.protocol import (
    AgentReport,
    CallFrame,
    EndHung,
    ProcessLook,
    ProcessState,
    TrainingProcess,
)
from penstock.trainer.control.model.job import JobFacts
from penstock.trainer.control.model.problems import Problems
from penstock.trainer.control.model.standstills import ORDER_SECONDS, SHOWN_SECONDS, Standstills
from penstock.trainer.standstill.response import HangPolicy


def report(idle: float, look: int = 0, state: ProcessState = ProcessState.RUNNING) -> AgentReport:
    frame = CallFrame(path="/app/train.py", line=3, function="hold")
    shown = (ProcessLook(pid=7, state="S", cpu_seconds=1.0, frames=(frame,)),) if look else ()
    return AgentReport(
        role="worker",
        rank=1,
        incarnation=0,
        node="node-a",
        state=state,
        processes=(TrainingProcess(pid=7, seconds=60.0, idle=idle),),
        looks=True,
        look=look,
        shown=shown,
        ends_hung=True,
    )


def stand_still(
    found: Standstills, *, holds_steps: bool = False, waiting: frozenset[int] | None = None
) -> float:
    now = 0.0
    for _ in range(20):
        now += 1.0
        found.hear(report(0.0), now)
        found.advance(now, JobFacts(), holds_steps=False)
    for second in range(1, 16):
        now += 1.0
        found.hear(report(float(second), found.look), now)
        found.advance(now, JobFacts(), holds_steps=holds_steps, waiting=waiting)
    return now


def test_the_worker_its_node_and_the_function_are_named_until_the_next_step() -> None:
    problems = Problems()
    found = Standstills(problems)
    now = stand_still(found)
    (problem,) = problems.current()
    assert (problem.source, problem.reason) == ("worker-1", JobReason.TRAINING_STANDS_STILL)
    assert "node-a" in problem.message
    assert "hold (/app/train.py:3)" in problem.message
    found.hear(report(0.2), now + 1)
    found.advance(now + 1, JobFacts(), holds_steps=False)
    assert problems.current() == ()


def test_nothing_is_said_while_nobody_is_to_take_a_step() -> None:
    problems = Problems()
    found = Standstills(problems)
    stand_still(found, holds_steps=True)
    assert (problems.current(), found.look) == ((), 0)


def test_while_a_group_is_formed_who_waits_for_it_is_left_alone_and_who_does_not_is_named() -> None:
    for waiting, named in ((frozenset({1}), False), (frozenset({0}), True), (frozenset(), True)):
        problems = Problems()
        found = Standstills(problems)
        stand_still(found, waiting=waiting)
        assert bool(problems.current()) == named, waiting


def test_who_is_named_and_then_waits_for_a_group_is_named_no_more() -> None:
    problems = Problems()
    found = Standstills(problems)
    now = stand_still(found)
    assert problems.current()
    found.advance(now + 1, JobFacts(), holds_steps=False, waiting=frozenset({1}))
    assert problems.current() == ()


def test_a_program_that_has_ended_or_a_pod_that_has_stands_still_no_more() -> None:
    for end in ("program", "pod"):
        problems = Problems()
        found = Standstills(problems)
        now = stand_still(found)
        if end == "program":
            found.hear(report(30.0, state=ProcessState.EXITED), now + 1)
        else:
            found.forget(1, 0)
        found.advance(now + 1, JobFacts(), holds_steps=False)
        assert problems.current() == (), end


RESTART = JobFacts(hang_policy=HangPolicy(OnHang.RESTART, after_seconds=30.0, most=1))


class Hanging:
    """A worker that stands still, and whose agent answers once a second."""

    def __init__(self, facts: JobFacts) -> None:
        self.facts = facts
        self.problems = Problems()
        self.found = Standstills(self.problems)
        self.now = stand_still(self.found)
        self.idle = 15.0

    def until(self, seconds: float, *, launched: bool = False) -> list[EndHung]:
        """Let it stand still for so long; what its agent is told to end, and when it is first."""
        told: list[EndHung] = []
        for _ in range(int(seconds)):
            self.now += 1.0
            self.idle += 1.0
            self.found.hear(report(self.idle, self.found.look), self.now)
            self.restarts = self.found.advance(
                self.now, self.facts, holds_steps=False, launched=launched
            )
            if (order := self.found.order_for(report(self.idle))) is not None:
                told.append(order)
                return told
        return told

    def reasons(self) -> set[JobReason]:
        return {one.reason for one in self.problems.current()}


def test_it_is_ended_after_another_look_and_once_the_job_says_so() -> None:
    hanging = Hanging(RESTART)
    (order,) = hanging.until(60)
    assert hanging.idle >= 30.0
    assert (order.pid, order.replace) == (7, False)
    assert "hold (/app/train.py:3)" in order.why
    assert "1 of at most 1 times" in order.why
    assert JobReason.HUNG_PROCESS_ENDED in hanging.reasons()
    assert not hanging.restarts, "only a launched world begins anew as a whole"


def test_an_order_is_repeated_until_the_process_is_gone_and_shown_for_a_while() -> None:
    hanging = Hanging(RESTART)
    (order,) = hanging.until(60)
    assert hanging.until(1) == [order]
    gone = report(0.0).model_copy(update={"processes": ()})
    hanging.found.hear(gone, hanging.now)
    assert hanging.found.order_for(gone) is None
    hanging.found.advance(hanging.now + 1, RESTART, holds_steps=False)
    assert hanging.reasons() == {JobReason.HUNG_PROCESS_ENDED}
    hanging.found.advance(hanging.now + SHOWN_SECONDS + 1, RESTART, holds_steps=False)
    assert hanging.reasons() == set()


def test_a_rank_of_which_ends_do_not_help_is_only_named() -> None:
    hanging = Hanging(RESTART)
    assert hanging.until(60)
    for _ in range(int(ORDER_SECONDS) + 2):  # its agent does nothing
        hanging.until(1)
    assert hanging.until(300) == []
    assert hanging.reasons() == {JobReason.TRAINING_STANDS_STILL, JobReason.HUNG_PROCESS_ENDED}
    (still,) = (
        one for one in hanging.problems.current() if one.reason is JobReason.TRAINING_STANDS_STILL
    )
    assert "it is not ended" in still.message
    assert "maxRestarts is 1" in still.message


def test_another_pod_of_the_rank_is_not_told_what_the_last_one_was() -> None:
    hanging = Hanging(JobFacts(hang_policy=HangPolicy(OnHang.REPLACE, 30.0, 3)))
    (order,) = hanging.until(60)
    assert order.replace
    newer = report(0.0).model_copy(update={"incarnation": 1})
    assert hanging.found.order_for(newer) is None


def test_a_launched_world_begins_anew() -> None:
    hanging = Hanging(RESTART)
    assert hanging.until(60, launched=True)
    assert hanging.restarts
