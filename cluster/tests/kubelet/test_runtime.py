"""Processes of containers: started, ended, killed, limited, never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock_cluster.kubelet.container.runtime import ContainerStartError, ProcessSpec, Runtime

PATH = os.environ["PATH"]


def run(scenario: Callable[[Runtime], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), Runtime() as runtime:
            await scenario(runtime)

    asyncio.run(main())


def spec(folder: Path, *argv: str, name: str = "c1", **more) -> ProcessSpec:
    env = {"PATH": PATH, **more.pop("env", {})}
    cwd = more.pop("cwd", str(folder))
    return ProcessSpec(name, argv, env, cwd, folder / f"{name}.log", **more)


def shell(folder: Path, script: str, **more) -> ProcessSpec:
    return spec(folder, "sh", "-c", script, **more)


def lines(folder: Path, name: str = "c1") -> list[str]:
    return [line.split(" ", 3)[3] for line in (folder / f"{name}.log").read_text().splitlines()]


def state(pid: int) -> str:
    """One letter as in ps: R, S, T for stopped, Z; X for a process that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    return state(pid) not in "ZX"


async def until(condition: Callable[[], object], what: str, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.01)


async def written(folder: Path, name: str) -> int:
    """The pid that a script wrote to a file."""
    file = folder / name
    await until(lambda: file.exists() and file.read_text().strip(), f"{name} is written")
    return int(file.read_text())


def test_exit_code_and_both_streams(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(shell(tmp_path, "echo out; echo err >&2; exit 7"))
        end = await running.exited
        assert (end.code, end.signal, end.out_of_memory) == (7, 0, False)

    run(scenario)
    assert sorted(lines(tmp_path)) == ["err", "out"]
    streams = {line.split(" ")[1] for line in (tmp_path / "c1.log").read_text().splitlines()}
    assert streams == {"stdout", "stderr"}


def test_a_signal_is_128_and_its_number(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(spec(tmp_path, "sleep", "60"))
        runtime.terminate(running.id)
        end = await running.exited
        assert (end.code, end.signal) == (143, 15)

    run(scenario)


@pytest.mark.parametrize(
    ("argv", "cwd", "message"),
    [
        (["no-such-program"], None, '"no-such-program": executable file not found in $PATH'),
        (["/no/such"], None, 'exec: "/no/such": no such file or directory'),
        (["/etc/passwd"], None, 'exec: "/etc/passwd": permission denied'),
        (["true"], "/no/such/folder", 'chdir to cwd ("/no/such/folder")'),
    ],
)
def test_a_program_that_cannot_be_run(
    tmp_path: Path, argv: list[str], cwd: str | None, message: str
) -> None:
    async def scenario(runtime: Runtime) -> None:
        with pytest.raises(ContainerStartError) as caught:
            await runtime.start(spec(tmp_path, *argv, cwd=cwd or str(tmp_path)))
        assert message in str(caught.value)

    run(scenario)


def test_environment_is_only_what_was_given(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(spec(tmp_path, "env", env={"A": "b c"}))
        await running.exited

    run(scenario)
    names = {line.partition("=")[0] for line in lines(tmp_path)}
    assert names == {"A", "PATH", "PENSTOCK_CONTAINER_ID"}


def test_children_end_with_the_main_process(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(shell(tmp_path, "sleep 60 & echo $! > child; exit 0"))
        assert (await running.exited).code == 0
        assert not is_running(await written(tmp_path, "child"))

    run(scenario)


def test_a_daemon_that_left_the_session_is_killed_too(tmp_path: Path) -> None:
    daemon = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    daemon += "open('daemon.part','w').write(str(os.getpid()))\n"
    daemon += "os.rename('daemon.part','daemon')\ntime.sleep(60)\n"
    (tmp_path / "daemon.py").write_text(daemon)

    async def scenario(runtime: Runtime) -> None:
        script = f"{sys.executable} daemon.py; sleep 60"
        running = await runtime.start(shell(tmp_path, script))
        pid = await written(tmp_path, "daemon")
        assert pid in await runtime.pids(running.id)
        runtime.kill(running.id)
        assert (await running.exited).code == 137
        assert not is_running(pid)

    run(scenario)


HIDDEN = "env -i $(command -v setsid) $(command -v setsid) sh -c 'echo $$ > daemon; exec sleep 61'"
"""A daemon in a session of its own, without the environment and without a living parent."""


def test_a_daemon_that_cleared_its_environment_too_is_killed_with_its_own(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(shell(tmp_path, f"{HIDDEN} & sleep 60"))
        await runtime.start(shell(other, f"{HIDDEN} & sleep 60", name="c2"))
        pid, others = await written(tmp_path, "daemon"), await written(other, "daemon")
        await until(lambda: parent(pid) == runtime.shim_pid, "the daemon has no other parent")
        assert pid in await runtime.pids(running.id)
        assert pid not in await runtime.pids("c2")
        runtime.kill(running.id)
        assert (await running.exited).code == 137
        assert not is_running(pid)
        assert is_running(others)

    run(scenario)
    assert not is_running(int((other / "daemon").read_text()))


def test_whoever_hides_from_the_shim_ends_with_it(tmp_path: Path) -> None:
    """Without its environment and its limits no container is known to be its own."""
    hide = "import os, resource; _, hard = resource.getrlimit(10); "
    hide += "resource.setrlimit(10, (hard, hard)); "
    hide += "os.execvpe('sh', ['sh', '-c', 'echo $$ > daemon; exec sleep 61'], {})"
    (tmp_path / "hide.py").write_text(hide)

    async def scenario(runtime: Runtime) -> None:
        await runtime.start(shell(tmp_path, f"setsid setsid {sys.executable} hide.py & sleep 60"))
        pid = await written(tmp_path, "daemon")
        await until(lambda: parent(pid) == runtime.shim_pid, "the daemon has no other parent")
        assert is_running(pid)

    run(scenario)
    assert not is_running(int((tmp_path / "daemon").read_text()))


def test_beyond_its_memory_a_container_is_killed_with_all_its_processes(tmp_path: Path) -> None:
    hog = "import time; b = bytearray(200 << 20); time.sleep(60)"
    small = "import time; time.sleep(60)"

    async def scenario(runtime: Runtime) -> None:
        script = f"{sys.executable} -c '{hog}' & echo $! > hog; wait"
        running = await runtime.start(shell(tmp_path, script, memory_bytes=100 << 20))
        other = await runtime.start(
            spec(tmp_path, sys.executable, "-c", small, name="c2", memory_bytes=100 << 20)
        )
        end = await running.exited
        assert (end.code, end.out_of_memory) == (137, True)
        assert not is_running(await written(tmp_path, "hog"))
        assert not other.exited.done()

    run(scenario)


def test_memory_shared_by_forks_counts_once(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, time
        block = bytearray(os.urandom(1 << 20) * 60)
        children = [os.fork() for _ in range(2)]
        if all(children):
            print("forked", flush=True)
        time.sleep(1.5)
    """)

    async def scenario(runtime: Runtime) -> None:
        # Four processes see the block: 240 MB resident, 60 MB in use.
        running = await runtime.start(
            spec(tmp_path, sys.executable, "-c", script, memory_bytes=150 << 20)
        )
        end = await running.exited
        assert (end.code, end.out_of_memory) == (0, False)

    run(scenario)


def test_cores(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        core = min(os.sched_getaffinity(0))
        script = "import os; print(sorted(os.sched_getaffinity(0)))"
        running = await runtime.start(spec(tmp_path, sys.executable, "-c", script, cores=(core,)))
        await running.exited
        assert lines(tmp_path) == [f"[{core}]"]

    run(scenario)


def test_stop_and_continue(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(shell(tmp_path, "while :; do echo x; sleep 0.02; done"))
        await until(lambda: len(lines(tmp_path)) > 3, "it runs")
        runtime.signal(running.id, signal.SIGSTOP)
        await asyncio.sleep(0.2)
        stopped_at = len(lines(tmp_path))
        await asyncio.sleep(0.3)
        assert len(lines(tmp_path)) == stopped_at
        runtime.signal(running.id, signal.SIGCONT)
        await until(lambda: len(lines(tmp_path)) > stopped_at + 3, "it runs again")
        runtime.kill(running.id)
        await running.exited

    run(scenario)


def test_a_stopped_container_that_would_handle_sigterm_hears_only_sigkill(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        script = "trap 'exit 0' TERM; echo set; while :; do sleep 0.05; done"
        running = await runtime.start(shell(tmp_path, script))
        await until(lambda: lines(tmp_path) == ["set"], "the trap is set")
        runtime.signal(running.id, signal.SIGSTOP)
        runtime.terminate(running.id)
        await asyncio.sleep(0.3)
        assert not running.exited.done()
        runtime.kill(running.id)
        assert (await running.exited).code == 137

    run(scenario)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_slowed_to_a_share_of_its_cpu_in_every_session(tmp_path: Path) -> None:
    async def used(pid: int, seconds: float) -> float:
        before = cpu_seconds(pid)
        await asyncio.sleep(seconds)
        return cpu_seconds(pid) - before

    async def scenario(runtime: Runtime) -> None:
        spin = "import os; os.setsid(); open('spinner', 'w').write(str(os.getpid()))\nwhile 1: pass"
        script = f'{sys.executable} -c "$0" & wait'
        running = await runtime.start(spec(tmp_path, "sh", "-c", script, spin))
        spinner = await written(tmp_path, "spinner")
        full = await used(spinner, 1.0)
        runtime.slow(running.id, 20)
        await asyncio.sleep(0.1)
        assert await used(spinner, 1.0) < 0.6 * full
        runtime.slow(running.id, None)
        await asyncio.sleep(0.2)
        for _ in range(20):
            assert state(spinner) != "T"
            await asyncio.sleep(0.02)
        runtime.kill(running.id)
        await running.exited

    run(scenario)


def test_files_stop_growing_when_the_disk_is_full(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import time
        while True:
            try:
                with open("data", "ab", buffering=0) as file:
                    file.write(b"x" * 1000)
            except OSError as error:
                print("errno", error.errno, flush=True)
                raise SystemExit(3)
            time.sleep(0.01)
    """)

    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(spec(tmp_path, sys.executable, "-c", script))
        await until((tmp_path / "data").exists, "it writes")
        runtime.set_largest_file(running.id, 0)
        assert (await running.exited).code == 3

    run(scenario)


def test_a_log_is_bounded(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        script = "i=0; while [ $i -lt 4000 ]; do echo line-$i; i=$((i+1)); done"
        running = await runtime.start(shell(tmp_path, script, log_bytes=20_000))
        await running.exited

    run(scenario)
    current, previous = tmp_path / "c1.log", tmp_path / "c1.log.1"
    assert current.stat().st_size <= 20_000
    assert previous.stat().st_size <= 20_000
    assert lines(tmp_path)[-1] == "line-3999"


def test_execution_beside_a_container(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        outcome = await runtime.execute(["sh", "-c", "echo hi; exit 3"], {"PATH": PATH}, "/", 5)
        assert (outcome.code, outcome.output, outcome.timed_out) == (3, "hi\n", False)
        late = await runtime.execute(["sleep", "30"], {"PATH": PATH}, "/", 0.2)
        assert late.timed_out

    run(scenario)


def test_many_at_once(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        started = await asyncio.gather(
            *(
                runtime.start(shell(tmp_path, f"exit {number}", name=f"c{number}"))
                for number in range(60)
            )
        )
        ends = await asyncio.gather(*(running.exited for running in started))
        assert [end.code for end in ends] == list(range(60))

    run(scenario)


def test_a_killed_shim_takes_its_containers_along_and_is_replaced(tmp_path: Path) -> None:
    async def scenario(runtime: Runtime) -> None:
        running = await runtime.start(spec(tmp_path, "sleep", "60"))
        assert runtime.shim_pid is not None
        os.kill(runtime.shim_pid, signal.SIGKILL)
        assert (await running.exited).lost
        await until(lambda: not is_running(running.pid), "the container is gone")
        again = await runtime.start(shell(tmp_path, "exit 0", name="c2"))
        assert (await again.exited).code == 0

    run(scenario)


def test_nothing_outlives_a_cluster_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "cluster.py"
    program.write_text(
        textwrap.dedent("""
            import asyncio, os, sys
            from pathlib import Path
            from penstock_cluster.kubelet.container.runtime import ProcessSpec, Runtime

            async def main():
                folder = Path(sys.argv[1])
                async with Runtime() as runtime:
                    script = "trap '' TERM; (trap '' TERM HUP; sleep 60) & echo $! > child; wait"
                    env = {"PATH": os.environ["PATH"]}
                    running = await runtime.start(
                        ProcessSpec("c", ["sh", "-c", script], env, str(folder), folder / "log")
                    )
                    (folder / "pids").write_text(f"{running.pid} {runtime.shim_pid}")
                    await running.exited

            asyncio.run(main())
        """)
    )
    cluster = subprocess.Popen([sys.executable, str(program), str(tmp_path)])

    async def scenario() -> None:
        await until((tmp_path / "pids").exists, "the container is started")
        child = await written(tmp_path, "child")
        await until(lambda: (tmp_path / "pids").read_text().count(" ") == 1, "pids are written")
        pids = [child, *map(int, (tmp_path / "pids").read_text().split())]
        assert all(map(is_running, pids))
        cluster.kill()
        cluster.wait()
        await until(lambda: not any(map(is_running, pids)), "everything is gone")

    try:
        asyncio.run(scenario())
    finally:
        cluster.kill()
        cluster.wait()
