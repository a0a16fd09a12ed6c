"""The supervisor starts components in order, restarts the dead, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.local.control_plane.components import Component
from penstock.local.control_plane.home import Home, HomeError
from penstock.local.control_plane.supervisor import StartError, supervised
from tests.patience import patient

ANNOUNCE = "print('listening on http://127.0.0.1:{port}', flush=True); import time; time.sleep(60)"


def announcing(name: str, port: int, *extra: str) -> Component:
    return Component(name, (sys.executable, "-c", ANNOUNCE.format(port=port), *extra))


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: object, timeout_seconds: float = 10.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + patient(timeout_seconds)
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def test_components_start_in_order_and_learn_addresses(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    echo = Component(
        "second",
        (sys.executable, "-c", "import sys; print(sys.argv[1] + '0', flush=True)", "{first}"),
        after=("first",),
    )
    order: list[str] = []

    async def run() -> dict[str, str]:
        async with supervised(home, [announcing("first", 81), echo], order.append) as addresses:
            return dict(addresses)

    addresses = asyncio.run(run())
    assert addresses == {"first": "http://127.0.0.1:81", "second": "http://127.0.0.1:810"}
    assert order == ["first", "second"]


def test_everything_is_stopped_at_the_end(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    async def run() -> list[int]:
        async with supervised(home, [announcing("a", 81), announcing("b", 82)]):
            state = home.read_state()
            assert state is not None
            assert state.ready
            return [component.pid for component in state.components.values()]

    pids = asyncio.run(run())
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_component_that_cannot_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    broken = Component("broken", (sys.executable, "-c", "raise SystemExit('port 80 is in use')"))

    async def run() -> None:
        async with supervised(home, [announcing("a", 81), broken]):
            raise AssertionError("not reached")

    with pytest.raises(StartError, match=r"(?s)broken did not start.*port 80 is in use"):
        asyncio.run(run())
    state = home.read_state()
    assert state is not None
    assert state.error is not None
    assert not alive(state.components["a"].pid)


def test_a_dead_component_is_started_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    async def run() -> tuple[int, int]:
        async with supervised(home, [announcing("a", 81)]):
            before = home.read_state()
            assert before is not None
            os.kill(before.components["a"].pid, signal.SIGKILL)
            async with asyncio.timeout(10):
                while True:
                    after = home.read_state()
                    assert after is not None
                    if after.components["a"].restarts:
                        return before.components["a"].pid, after.components["a"].pid
                    await asyncio.sleep(0.05)

    first, second = asyncio.run(run())
    assert first != second


def test_a_component_is_started_again_although_its_log_cannot_be_written(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    async def run() -> None:
        async with supervised(home, [announcing("a", 81)]):
            before = home.read_state()
            assert before is not None
            log = home.logs / "a.log"
            log.unlink()
            log.mkdir()
            os.kill(before.components["a"].pid, signal.SIGKILL)
            await asyncio.sleep(1.0)  # the first attempt to start it fails
            log.rmdir()
            async with asyncio.timeout(10):
                while True:
                    after = home.read_state()
                    assert after is not None
                    if after.components["a"].pid != before.components["a"].pid:
                        assert after.components["a"].restarts > 1
                        return
                    await asyncio.sleep(0.05)

    asyncio.run(run())


def test_a_start_that_is_called_off_stops_what_has_started(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    def call_off(name: str) -> None:
        raise StartError(f"told to stop while {name} was starting")

    async def run() -> None:
        async with supervised(home, [announcing("a", 81), announcing("b", 82)], call_off):
            raise AssertionError("not reached")

    with pytest.raises(StartError, match="while a was starting"):
        asyncio.run(run())
    state = home.read_state()
    assert state is not None
    assert not state.ready
    assert state.error is not None
    assert not alive(state.components["a"].pid)


def test_components_die_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from penstock.local.control_plane.components import Component\n"
        "from penstock.local.control_plane.home import Home\n"
        "from penstock.local.control_plane.supervisor import supervised\n"
        f"component = Component('a', (sys.executable, '-c', {ANNOUNCE.format(port=81)!r}))\n"
        "async def main():\n"
        f"    async with supervised(Home(Path({str(tmp_path)!r})), [component]):\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", program])
    home = Home(tmp_path)

    def ready() -> bool:
        state = home.read_state()
        return state is not None and state.ready

    wait_until(ready)
    state = home.read_state()
    assert state is not None
    supervisor.kill()
    supervisor.wait(timeout=10)
    wait_until(lambda: not alive(state.components["a"].pid))


def test_one_folder_holds_one_control_plane(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    with home.lock():
        assert home.is_locked()
        with pytest.raises(HomeError, match="penstock down"), home.lock():
            raise AssertionError("not reached")
    assert not home.is_locked()


LEAVES_A_CHILD = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with open(sys.argv[1], "a") as file:
    file.write(str(child.pid) + chr(10))
{before}
print("listening on http://127.0.0.1:81", flush=True)
time.sleep(0.2)
"""


def children(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().splitlines()] if pids.exists() else []


def test_a_component_whose_child_holds_its_output_is_started_again(tmp_path: Path) -> None:
    home, pids = Home(tmp_path / "home"), tmp_path / "pids"
    script = LEAVES_A_CHILD.replace("{before}", "")
    component = Component("forks", (sys.executable, "-c", script, str(pids)))

    async def run() -> None:
        async with asyncio.timeout(30), supervised(home, [component]):
            await asyncio.to_thread(wait_until, lambda: len(children(pids)) >= 2)

    try:
        asyncio.run(run())
    finally:
        for pid in children(pids):
            os.kill(pid, signal.SIGKILL)


def test_a_component_that_dies_before_it_starts_is_named_though_its_child_lives(
    tmp_path: Path,
) -> None:
    home, pids = Home(tmp_path / "home"), tmp_path / "pids"
    script = LEAVES_A_CHILD.replace("{before}", "raise SystemExit(3)")
    component = Component("forks", (sys.executable, "-c", script, str(pids)))

    async def run() -> None:
        async with asyncio.timeout(30), supervised(home, [component]):
            raise AssertionError("it cannot have started")

    try:
        with pytest.raises(StartError, match="forks did not start: it ended with exit code 3"):
            asyncio.run(run())
    finally:
        for pid in children(pids):
            os.kill(pid, signal.SIGKILL)
