"""One container in the shim: its main process, what came of that, and how to act on all of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
from typing import Any

from penstock_cluster.kubelet.shim.governor import Governor
from penstock_cluster.kubelet.shim.logfile import LogFile
from penstock_cluster.kubelet.shim.processes import (
    MARK,
    Process,
    by_container,
    every_thread,
    handles,
    memory_in_use,
    process_table,
    seal_this_process,
)

_PR_SET_PDEATHSIG = 1
KILL_ROUNDS = 20
_LIBC = ctypes.CDLL(None)

CHUNK_BYTES = 64 * 1024


def spawn(
    request: dict[str, Any], container_id: str, cores: list[int] | None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, its output on pipes; raises OSError."""
    shim = os.getpid()

    def before_exec() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(128 + signal.SIGKILL)
        seal_this_process(container_id)
        if cores:
            os.sched_setaffinity(0, cores)

    return subprocess.Popen(
        request["argv"],
        cwd=request["cwd"],
        env=request["env"] | {MARK: container_id},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if request["op"] == "start" else subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=before_exec,  # noqa: PLW1509  this process has one thread
    )


def exit_code(returncode: int) -> tuple[int, int]:
    """``(code, signal)`` as a container runtime reports them: 128+n for signal n."""
    return (128 - returncode, -returncode) if returncode < 0 else (returncode, 0)


class Container:
    """A running container."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.id: str = request["id"]
        self.memory_bytes: int | None = request.get("memory_bytes")
        self.out_of_memory = False
        self._is_pid_one = bool(request.get("is_pid_one"))
        self._cores: list[int] | None = request.get("cores")
        self.process = spawn(request, self.id, self._cores)
        self.governor = Governor(self.pid)
        self.governor.set(request.get("milli_cpu"), request.get("percent"), self._core_count)
        self.log = LogFile(request["log"], request["log_bytes"])
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.pipes = {
            self.process.stdout.fileno(): "stdout",
            self.process.stderr.fileno(): "stderr",
        }
        for pipe in self.pipes:
            os.set_blocking(pipe, False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def _core_count(self) -> int:
        return len(self._cores or ()) or os.cpu_count() or 1

    def govern(self, milli_cpu: int | None, percent: int | None) -> None:
        """Enforce a CPU limit, a speed, both, or neither, from now on."""
        if not self.governor.is_at_work:
            self.governor.adopt(process.pid for process in self.processes())
        self.governor.set(milli_cpu, percent, self._core_count)

    def processes(self) -> list[Process]:
        return by_container(process_table(), {self.pid: self.id})[self.pid]

    def copy_output(self, pipe: int) -> bool:
        """Move what there is from the pipe to the log; False at its end."""
        while True:
            try:
                chunk = os.read(pipe, CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.log.write(self.pipes[pipe], chunk)
            if len(chunk) < CHUNK_BYTES:
                return True

    def drain(self) -> None:
        """Move all output that was written before the processes ended."""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                while chunk := os.read(pipe, CHUNK_BYTES):
                    self.log.write(self.pipes[pipe], chunk)
        self.log.close()

    def signal_main(self, number: int) -> None:
        """As a runtime stops a container: the main process alone is told.

        The first process of a PID namespace is not ended by a signal that it does not handle.
        """
        if self._is_pid_one and not handles(self.pid, number):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_all(self, number: int) -> None:
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        if number in {signal.SIGSTOP, signal.SIGCONT}:
            self.governor.paused(number == signal.SIGSTOP)

    def kill(self) -> None:
        """SIGKILL to every process, again until none is left (one may be forking)."""
        for _ in range(KILL_ROUNDS):
            living = self.processes()
            if not living:
                return
            for process in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def is_beyond_memory(self, processes: list[Process]) -> bool:
        if self.memory_bytes is None:
            return False
        return memory_in_use(processes, self.memory_bytes) > self.memory_bytes

    def set_cores(self, cores: list[int] | None) -> None:
        """Move every thread; threads to come inherit it from theirs."""
        if not cores:
            return
        self._cores = cores
        for process in self.processes():
            for thread in every_thread(process.pid):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(thread, cores)

    def set_largest_file(self, limit_bytes: int | None) -> None:
        """Let files grow to this size only (EFBIG beyond it); None takes the limit away."""
        soft = resource.RLIM_INFINITY if limit_bytes is None else limit_bytes
        for process in self.processes():
            with contextlib.suppress(OSError, ValueError):
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))


class Execution:
    """A command run beside a container's processes, for probes and hooks; output is bounded."""

    LONGEST_OUTPUT_BYTES = 10 * 1024

    def __init__(self, request: dict[str, Any], deadline: float) -> None:
        self.id: str = request["id"]
        self.deadline = deadline
        self.timed_out = False
        self.output = b""
        self.process = spawn(request, self.id, None)
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        os.set_blocking(self.pipe, False)

    def copy_output(self) -> bool:
        """Take what there is; False at the end of the pipe."""
        while True:
            try:
                chunk = os.read(self.pipe, CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            room = self.LONGEST_OUTPUT_BYTES - len(self.output)
            self.output += chunk[: max(0, room)]

    def kill(self) -> None:
        pid = self.process.pid
        for process in by_container(process_table(), {pid: self.id})[pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
