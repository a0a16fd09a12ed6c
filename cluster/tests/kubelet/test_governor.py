"""CPU limits and slow machines: what a container may use, and when it stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.tests.kubelet.test_runtime import run, spec, written
from penstock_cluster.kubelet.container.runtime import Runtime
from penstock_cluster.kubelet.shim.governor import (
    GRID_NS,
    PERIOD_NS,
    SHORTEST_STOP_NS,
    Governor,
)

MS = 1_000_000


class Machine:
    """One process that computes whenever it may, and a governor that is asked in time."""

    def __init__(self, *, busy: float = 1.0, cores: int = 1) -> None:
        self.now = 50 * MS
        self.used = 0
        self.runs = True
        self.signals: list[int] = []
        self.governor = Governor(7, self._read, self._send)
        self._rate = busy * cores

    def _read(self, _: int) -> int:
        return self.used

    def _send(self, _: int, number: int) -> None:
        self.runs = number == signal.SIGCONT
        self.signals.append(number)

    def go(self, until_ns: int, late_ns: Callable[[], int] = lambda: 0) -> None:
        while self.now < until_ns:
            later = min(until_ns, max(self.now + 1, self.governor.next_look + late_ns()))
            if self.runs:
                self.used += int((later - self.now) * self._rate)
            self.now = later
            self.governor.look(self.now)


@given(milli=st.integers(50, 1900), cores=st.integers(1, 4), late=st.integers(0, 20))
def test_in_the_long_run_it_gets_its_limit(milli: int, cores: int, late: int) -> None:
    machine = Machine(cores=cores)
    machine.governor.set(milli, None, cores)
    machine.go(20 * PERIOD_NS, lambda: late * MS)
    seconds, used = (machine.now - 50 * MS) / 1e9, machine.used / 1e9
    wanted = seconds * min(milli / 1000, cores)
    slack = 0.15 * milli / 1000 + cores * (late * MS + 2 * GRID_NS) / 1e9
    assert wanted - slack <= used <= wanted + slack


@given(milli=st.integers(100, 900))
def test_what_stays_below_its_limit_never_stands_still(milli: int) -> None:
    machine = Machine(busy=0.9 * milli / 1000)
    machine.governor.set(milli, None, 1)
    machine.go(20 * PERIOD_NS)
    assert machine.signals == []


def test_what_was_not_used_is_not_kept() -> None:
    machine = Machine(busy=0.0)
    machine.governor.set(200, None, 1)
    machine.go(10 * PERIOD_NS)
    machine._rate = 1.0
    began = machine.now
    machine.go(began + PERIOD_NS)
    assert machine.used <= 2 * 0.2 * PERIOD_NS + GRID_NS


@given(percent=st.integers(5, 95), busy=st.floats(0.05, 1.0))
def test_on_a_slow_machine_everything_takes_longer(percent: int, busy: float) -> None:
    machine = Machine(busy=busy)
    machine.governor.set(None, percent, 2)
    machine.go(2_000 * MS)
    ran = machine.used / busy
    still = 1950 * MS - ran
    assert still == pytest.approx(machine.used * (100 - percent) / percent, abs=100 * MS)


def test_a_limit_counts_for_less_work_on_a_slow_machine() -> None:
    machine = Machine()
    machine.governor.set(400, 25, 1)
    machine.go(4_050 * MS)
    assert machine.used / 4e9 == pytest.approx(0.1, abs=0.01)


class InBursts(Machine):
    """One that works for half a millisecond of each five."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped_at_work: list[bool] = []

    @property
    def works(self) -> bool:
        return self.runs and self.now % (5 * MS) < MS // 2

    def _read(self, _: int) -> int:
        self.used += self.works  # time goes by while somebody looks
        return self.used

    def _send(self, pid: int, number: int) -> None:
        if number == signal.SIGSTOP:
            self.stopped_at_work.append(self.works)
        super()._send(pid, number)

    def go(self, until_ns: int, late_ns: Callable[[], int] = lambda: 0) -> None:
        while self.now < until_ns:
            later = min(until_ns, max(self.now + 1, self.governor.next_look + late_ns()))
            while self.now < later:
                self.used += MS // 8 if self.works else 0
                self.now += min(MS // 8, later - self.now)
            self.governor.look(self.now)


def test_a_limit_on_a_slow_machine_stops_what_runs() -> None:
    machine = InBursts()
    machine.governor.set(100, 25, 1)
    machine.go(6_050 * MS)
    assert machine.used / 6e9 == pytest.approx(0.025, abs=0.005)
    at_work = machine.stopped_at_work
    assert len(at_work) > 30
    assert sum(at_work) > 0.9 * len(at_work)


def test_whoever_is_found_late_pays_for_what_it_used_up_to_a_bound() -> None:
    machine = Machine(busy=0.0)
    machine.governor.set(100, None, 1)
    machine.go(2 * PERIOD_NS)
    machine.used = 3600 * 1000 * MS
    machine.go(machine.now + 13 * PERIOD_NS)
    assert machine.runs, "an hour of CPU time is not an hour of standing still"


def test_what_somebody_else_stopped_is_left_so() -> None:
    machine = Machine()
    machine.governor.set(200, None, 1)
    machine.go(110 * MS)
    assert machine.signals == [signal.SIGSTOP]
    machine.governor.paused(True)
    machine.go(500 * MS)
    assert machine.signals == [signal.SIGSTOP]
    machine.governor.paused(False)
    machine.runs = True
    machine.go(900 * MS)
    assert machine.signals[1:3] == [signal.SIGSTOP, signal.SIGCONT]


def test_a_limit_that_is_taken_away_lets_it_run() -> None:
    machine = Machine()
    machine.governor.set(200, None, 1)
    machine.go(110 * MS)
    assert not machine.runs
    machine.governor.set(None, None, 1)
    assert machine.runs
    assert not machine.governor.is_at_work


def test_a_process_that_has_ended_is_passed_over() -> None:
    def read(pid: int) -> int:
        raise ProcessLookupError(pid)

    def send(pid: int, number: int) -> None:
        raise ProcessLookupError(pid)

    governor = Governor(7, read, send)
    governor.set(100, 50, 1)
    governor.look(1)
    governor.roll_call([8, 9])
    governor.look(PERIOD_NS)
    assert governor.next_look > PERIOD_NS + SHORTEST_STOP_NS


# Real processes

SPIN = "import os; open(os.environ['NAME'], 'w').write(str(os.getpid()))\nwhile 1: pass"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def shares(pids: list[int], seconds: float) -> list[float]:
    """Cores that each process used over a time."""
    loop = asyncio.get_running_loop()
    began, before = loop.time(), [cpu_seconds(pid) for pid in pids]
    await asyncio.sleep(seconds)
    took = loop.time() - began
    return [(cpu_seconds(pid) - used) / took for pid, used in zip(pids, before, strict=True)]


async def keep_to(groups: list[list[int]], limits: list[float], within: float) -> None:
    """Wait until each group of processes has used what it may, no more and no less.

    What a busy machine lets a process use in one window says little of its limit.
    """
    used: list[list[float]] = []
    for _ in range(12):
        each = iter(await shares([pid for pids in groups for pid in pids], 2.5))
        used.append([sum(next(each) for _ in pids) for pids in groups])
        if all(abs(one - limit) < within for one, limit in zip(used[-1], limits, strict=True)):
            return
    raise AssertionError(f"{used} of {limits}")


def test_two_containers_keep_to_their_limits(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running, pids = [], []
        for name, milli in (("a", 300), ("b", 100)):
            process = spec(
                tmp_path, sys.executable, "-c", SPIN, name=name, env={"NAME": name}, milli_cpu=milli
            )
            running.append(await runtime.start(process))
            pids.append(await written(tmp_path, name))
        await keep_to([[pid] for pid in pids], [0.3, 0.1], 0.05)
        runtime.set_limits(running[0].id, [], None, 100)
        await keep_to([pids[:1]], [0.1], 0.05)
        for one in running:
            runtime.terminate(one.id)
            end = await asyncio.wait_for(one.exited, 5)
            assert end.signal == signal.SIGTERM, "also while it stands still"

    run(scenario)


def test_processes_to_come_are_limited_too(tmp_path: Path) -> None:
    script = 'python=$0; for i in 1 2; do NAME=child$i $python -c "$1" & done; wait'
    limits = {"milli_cpu": 200, "cores": (min(os.sched_getaffinity(0)),)}

    async def scenario(runtime: Runtime) -> None:
        process = spec(tmp_path, "sh", "-c", script, sys.executable, SPIN, **limits)
        running = await runtime.start(process)
        pids = [await written(tmp_path, f"child{number}") for number in (1, 2)]
        await asyncio.sleep(1.5)  # what they used before they were found is paid back
        await keep_to([pids], [0.2], 0.06)
        runtime.kill(running.id)
        await running.exited

    run(scenario)


def test_it_costs_little(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        source = "import os, sys, time; open(os.environ['NAME'], 'w').write(str(os.getpid()))\n"
        source += "while 1: sum(range(20000)); time.sleep(0.005)"
        for number in range(10):
            await runtime.start(
                spec(
                    tmp_path,
                    sys.executable,
                    "-c",
                    source,
                    name=f"c{number}",
                    env={"NAME": f"c{number}"},
                    milli_cpu=100,
                )
            )
            await written(tmp_path, f"c{number}")
        assert runtime.shim_pid is not None
        [cost] = await shares([runtime.shim_pid], 5.0)
        print(f"{cost:.4f} cores for 10 containers")
        assert cost < 0.05  # alone on the machine 0.01 to 0.02

    run(scenario)
