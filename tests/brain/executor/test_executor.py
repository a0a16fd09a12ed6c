"""Whatever an algorithm does, one call has an outcome and the next one works."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from penstock.base.enums import Role, Strategy
from penstock.brain.configuration import ExecutorSettings
from penstock.brain.executor import Executor, Outcome, Task, TaskResult
from penstock.brain.executor.child import Histories
from penstock.brain.history import HistoryRecord
from penstock.brain.planning import JobDescription, Limits, RoleSpec
from tests.brain.executor.plugins import registered

ROOT = Path(__file__).parents[3]
FAST = ExecutorSettings(processes=1, timeout_seconds=1.0, memory_bytes=512 * 1024**2)
PATIENT = FAST.model_copy(update={"timeout_seconds": 45.0})
"""Executors are nice: on a machine busy with other tests they wait long for the CPU."""


@pytest.fixture(autouse=True)
def plugins_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), before])))


def task(deed: str, note: str = "") -> Task:
    return Task(
        entry=registered(deed, note=note),
        record=HistoryRecord(now_seconds=1.0),
        job=JobDescription(uid="u", strategy=Strategy.ALL_REDUCE, roles={Role.WORKER: RoleSpec()}),
        limits=Limits(),
    )


def run(*deeds: str, settings: ExecutorSettings = FAST) -> list[TaskResult]:
    async def main() -> list[TaskResult]:
        executor = Executor(settings)
        try:
            return [await executor.run(task(deed)) for deed in deeds]
        finally:
            await executor.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("deed", "outcome", "words"),
    [
        ("raise", Outcome.FAILED, "KeyError: 'w_hat'"),
        ("exit", Outcome.CRASHED, "exited with 3"),
        ("die", Outcome.CRASHED, "signal 11"),
        ("hang", Outcome.TIMED_OUT, "no answer within 1 s"),
        ("spin", Outcome.TIMED_OUT, "no answer within 1 s"),
        ("eat", Outcome.FAILED, "MemoryError"),
        ("nonsense", Outcome.FAILED, "answered a dict"),
        ("huge", Outcome.CRASHED, "at most 4194304 are read"),
    ],
)
def test_a_misbehaving_algorithm_is_one_failure_and_the_next_call_works(
    deed: str, outcome: Outcome, words: str
) -> None:
    impatient = outcome is Outcome.TIMED_OUT
    bad, good = run(deed, "plan", settings=FAST if impatient else PATIENT)
    assert bad.outcome is outcome
    assert words in bad.detail
    assert bad.plan is None
    assert good.outcome is Outcome.PLANNED
    assert good.plan is not None
    assert good.plan.message == "as asked"


def test_what_a_plugin_prints_does_not_become_its_answer() -> None:
    (result,) = run("print")
    assert result.outcome is Outcome.PLANNED


def test_none_is_an_answer() -> None:
    (result,) = run("none")
    assert (result.outcome, result.plan) == (Outcome.NO_PLAN, None)


def test_a_process_serves_many_calls_and_is_replaced_after_its_share() -> None:
    settings = FAST.model_copy(update={"calls_per_process": 3})
    results = run(*["pid"] * 7, settings=settings)
    pids = [result.plan.message for result in results if result.plan is not None]
    assert len(pids) == 7
    assert pids[0] == pids[1] == pids[2] != pids[3]
    assert len(set(pids)) == 3


def test_the_calls_of_a_case_go_to_the_process_that_has_its_history() -> None:
    async def main() -> list[str]:
        executor = Executor(PATIENT.model_copy(update={"processes": 2}))
        one, other = task("pid"), task("pid")
        try:
            await asyncio.gather(executor.run(one), executor.run(other))  # each has a process
            return [await pid_of(executor, each) for each in (one, other, one, one, other, other)]
        finally:
            await executor.close()

    async def pid_of(executor: Executor, each: Task) -> str:
        result = await executor.run(each)
        assert result.plan is not None
        return result.plan.message

    one, other, *again = asyncio.run(main())
    assert one != other
    assert again == [one, one, other, other]


def test_samples_become_objects_once_for_all_calls_of_a_case() -> None:
    histories = Histories()
    first = histories.of(HistoryRecord(now_seconds=1.0))
    assert histories.of(HistoryRecord(now_seconds=1.0)) is first  # as it comes through the pipe
    assert histories.of(HistoryRecord(now_seconds=2.0)).now_seconds == 2.0


def test_as_many_run_at_once_as_there_are_processes() -> None:
    async def main() -> float:
        executor = Executor(FAST.model_copy(update={"processes": 3, "timeout_seconds": 1.5}))
        try:
            await asyncio.gather(*(executor.run(task("none")) for _ in range(3)))  # started
            began = time.monotonic()
            results = await asyncio.gather(*(executor.run(task("hang")) for _ in range(3)))
            assert {result.outcome for result in results} == {Outcome.TIMED_OUT}
            return time.monotonic() - began
        finally:
            await executor.close()

    assert asyncio.run(main()) < 2 * 1.5


def test_the_pool_follows_its_configuration_while_calls_run() -> None:
    async def main() -> None:
        executor = Executor(FAST)
        try:
            running = asyncio.create_task(executor.run(task("hang")))
            await asyncio.sleep(0.2)
            waiting = asyncio.create_task(executor.run(task("none")))
            await asyncio.sleep(0.1)
            assert (executor.busy, waiting.done()) == (1, False)
            await executor.configure(FAST.model_copy(update={"processes": 2}))
            assert (await waiting).outcome is Outcome.NO_PLAN
            assert not running.done()
            assert (await running).outcome is Outcome.TIMED_OUT
            await executor.configure(FAST)
            await executor.run(task("none"))
            assert executor.size <= 1
        finally:
            await executor.close()

    asyncio.run(main())


def test_a_cancelled_call_does_not_poison_the_process() -> None:
    async def main() -> None:
        executor = Executor(FAST)
        try:
            call = asyncio.create_task(executor.run(task("hang")))
            await asyncio.sleep(0.5)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await executor.run(task("plan"))).outcome is Outcome.PLANNED
        finally:
            await executor.close()

    asyncio.run(main())


def test_a_pipe_that_a_grandchild_holds_keeps_nobody_waiting(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    async def main() -> TaskResult:
        executor = Executor(FAST)
        try:
            async with asyncio.timeout(20):  # the grandchild lives for 60 s
                return await executor.run(task("orphan", str(note)))
        finally:
            await executor.close()

    try:
        assert asyncio.run(main()).outcome is Outcome.TIMED_OUT
        os.kill(int(note.read_text()), 0)  # it did hold the pipe all the while
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("program", ["/nonexistent/python", "/bin/false"])
def test_a_process_that_cannot_start_is_a_failed_call(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.brain.executor.process.sys.executable", program)
    (result,) = run("plan")
    assert result.outcome is Outcome.FAILED
    assert "no process could be started" in result.detail


def test_closing_leaves_no_process_behind() -> None:
    async def main() -> int:
        executor = Executor(FAST)
        result = await executor.run(task("pid"))
        assert result.plan is not None
        await executor.close()
        return int(result.plan.message.rpartition(" ")[2])

    pid = asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
