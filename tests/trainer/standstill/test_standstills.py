"""What the trainer makes of its agents' reports: a look is asked for, and the worker is named."""

from __future__ import annotations

from penstock.crds.conditions import JobReason
from penstock.job.protocol import AgentReport, CallFrame, ProcessLook, ProcessState, TrainingProcess
from penstock.trainer.control.model.problems import Problems
from penstock.trainer.control.model.standstills import Standstills


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
    )


def stand_still(found: Standstills, *, forms_group: bool = False) -> float:
    now = 0.0
    for _ in range(20):
        now += 1.0
        found.hear(report(0.0), now)
        found.advance(now, forms_group=False)
    for second in range(1, 16):
        now += 1.0
        found.hear(report(float(second), found.look), now)
        found.advance(now, forms_group=forms_group)
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
    found.advance(now + 1, forms_group=False)
    assert problems.current() == ()


def test_nothing_is_said_while_a_group_is_formed() -> None:
    problems = Problems()
    found = Standstills(problems)
    stand_still(found, forms_group=True)
    assert (problems.current(), found.look) == ((), 0)


def test_a_program_that_has_ended_or_a_pod_that_has_stands_still_no_more() -> None:
    for end in ("program", "pod"):
        problems = Problems()
        found = Standstills(problems)
        now = stand_still(found)
        if end == "program":
            found.hear(report(30.0, state=ProcessState.EXITED), now + 1)
        else:
            found.forget(1, 0)
        found.advance(now + 1, forms_group=False)
        assert problems.current() == (), end
