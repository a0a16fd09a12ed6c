"""The shim's loop: requests from the kubelet, output of containers, ends of processes, timers.

One thread, one selector. Requests and events are JSON, one per line, over the socket whose file
descriptor is the argument. Every request names an operation (``op``) and a container (``id``);
``start`` is answered by ``started`` or ``failed``, the end of a container is told once, by
``exited``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from penstock_cluster.kubelet.shim.container import KILL_ROUNDS, Container, Execution, exit_code
from penstock_cluster.kubelet.shim.governor import SHORTEST_STOP_NS
from penstock_cluster.kubelet.shim.processes import (
    Process,
    by_container,
    descendants,
    process_table,
)

_PR_SET_CHILD_SUBREAPER = 36
_SA_NOCLDSTOP = 1
_MEMORY_POLL_SECONDS = 0.2
_ROLL_CALL_SECONDS = 0.5
_IDLE_SECONDS = 5.0

Json = dict[str, Any]


class Shim:
    """All containers of one cluster."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = b""
        self._selector = selectors.DefaultSelector()
        self._containers: dict[str, Container] = {}
        self._executions: dict[str, Execution] = {}
        self._next_memory_poll = 0.0
        self._next_roll_call = 0.0
        self._has_news = True

    def run(self) -> None:
        """Serve until the kubelet is gone, then leave nothing behind."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ, self._read_requests)
        self._selector.register(wake_read, selectors.EVENT_READ, lambda: self._wake(wake_read))
        try:
            while True:
                for key, _ in self._selector.select(self._wait_seconds()):
                    key.data()
                if self._has_news:
                    self._has_news = False
                    self._reap()
                self._poll_memory()
                self._govern()
                self._expire_executions()
        except (EOFError, ConnectionError):
            pass
        finally:
            self._kill_everything()

    def _wake(self, pipe: int) -> None:
        """A signal came; of a child's end one always does."""
        os.read(pipe, 4096)
        self._has_news = True

    def _wait_seconds(self) -> float:
        now = time.monotonic()
        waits = [_IDLE_SECONDS]
        waits += [
            container.governor.next_look / 1e9 - now
            for container in self._containers.values()
            if container.governor.is_at_work
        ]
        if any(container.memory_bytes for container in self._containers.values()):
            waits.append(self._next_memory_poll - now)
        waits += [execution.deadline - now for execution in self._executions.values()]
        return max(0.0, min(waits))

    def _read_requests(self) -> None:
        data = self._control.recv(1 << 20)
        if not data:
            raise EOFError
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._serve(json.loads(line))

    def _send(self, event: Json) -> None:
        self._control.sendall(json.dumps(event).encode() + b"\n")

    def _serve(self, request: Json) -> None:
        operation = request["op"]
        if operation == "start":
            self._start(request)
            return
        if operation == "exec":
            self._execute(request)
            return
        container = self._containers.get(request["id"])
        if container is None:
            return  # it has ended; its `exited` is on the way or was read already
        match operation:
            case "terminate":
                container.signal_main(request["signal"])
            case "kill":
                container.out_of_memory |= bool(request.get("out_of_memory"))
                container.kill()
            case "signal":
                container.signal_all(request["signal"])
            case "slow":
                container.govern(container.governor.milli_cpu, request["percent"])
            case "limits":
                container.memory_bytes = request["memory_bytes"]
                container.set_cores(request["cores"])
                container.govern(request["milli_cpu"], container.governor.percent)
            case "largest-file":
                container.set_largest_file(request["bytes"])
            case "inspect":
                pids = sorted(process.pid for process in container.processes())
                self._send({"event": "inspected", "id": container.id, "pids": pids})

    def _start(self, request: Json) -> None:
        try:
            container = Container(request)
        except (OSError, ValueError) as error:
            missing = getattr(error, "filename", None)
            self._send(
                {
                    "event": "failed",
                    "id": request["id"],
                    "errno": getattr(error, "errno", None) or 0,
                    "error": getattr(error, "strerror", None) or str(error),
                    "is_cwd": missing == request["cwd"],
                }
            )
            return
        self._containers[container.id] = container
        for pipe in container.pipes:
            self._selector.register(pipe, selectors.EVENT_READ, self._copier(container, pipe))
        self._send({"event": "started", "id": container.id, "pid": container.pid})

    def _copier(self, container: Container, pipe: int) -> Any:
        def copy() -> None:
            if not container.copy_output(pipe):
                self._selector.unregister(pipe)

        return copy

    def _execute(self, request: Json) -> None:
        try:
            execution = Execution(request, time.monotonic() + request["timeout_seconds"])
        except (OSError, ValueError) as error:
            self._send_execution(request["id"], 128, str(error), timed_out=False)
            return
        self._executions[execution.id] = execution

        def copy() -> None:
            if not execution.copy_output():
                self._selector.unregister(execution.pipe)

        self._selector.register(execution.pipe, selectors.EVENT_READ, copy)

    def _reap(self) -> None:
        for container in list(self._containers.values()):
            if container.process.poll() is not None:
                self._finish(container)
        for execution in list(self._executions.values()):
            if execution.process.poll() is not None:
                self._finish_execution(execution)
        # Orphans of containers become children of this process: reap those that nobody polls.
        known = {container.pid for container in self._containers.values()}
        known |= {execution.process.pid for execution in self._executions.values()}
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and (
                found.si_pid not in known
            ):
                os.waitpid(found.si_pid, os.WNOHANG)

    def _finish(self, container: Container) -> None:
        container.kill()  # a container ends with its main process
        for pipe in container.pipes:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(pipe)
        container.drain()
        for stream in (container.process.stdout, container.process.stderr):
            assert stream is not None
            stream.close()
        del self._containers[container.id]
        code, number = exit_code(container.process.returncode)
        self._send(
            {
                "event": "exited",
                "id": container.id,
                "code": code,
                "signal": number,
                "out_of_memory": container.out_of_memory and number == signal.SIGKILL,
            }
        )

    def _finish_execution(self, execution: Execution) -> None:
        execution.kill()
        execution.copy_output()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(execution.pipe)
        assert execution.process.stdout is not None
        execution.process.stdout.close()
        del self._executions[execution.id]
        code, _ = exit_code(execution.process.returncode)
        output = execution.output.decode(errors="replace")
        self._send_execution(execution.id, code, output, timed_out=execution.timed_out)

    def _send_execution(self, name: str, code: int, output: str, *, timed_out: bool) -> None:
        event = {"event": "executed", "id": name, "code": code, "output": output}
        self._send(event | {"timed_out": timed_out})

    def _members(self, containers: list[Container]) -> dict[int, list[Process]]:
        """The processes of containers by their main process."""
        return by_container(process_table(), {one.pid: one.id for one in containers})

    def _poll_memory(self) -> None:
        now = time.monotonic()
        limited = [c for c in self._containers.values() if c.memory_bytes is not None]
        if not limited or now < self._next_memory_poll:
            return
        processes = self._members(limited)
        for container in limited:
            if container.is_beyond_memory(processes[container.pid]):
                container.out_of_memory = True
                container.kill()
        # What looking costs must stay a small part of what the containers may use.
        took = time.monotonic() - now
        self._next_memory_poll = now + max(_MEMORY_POLL_SECONDS, 20 * took)

    def _govern(self) -> None:
        """Look at the containers whose CPU is limited; who is new is found twice a second."""
        governed = [c for c in self._containers.values() if c.governor.is_at_work]
        if not governed:
            return
        now = time.monotonic_ns()
        if now / 1e9 >= self._next_roll_call:
            processes = self._members(governed)
            for container in governed:
                container.governor.roll_call(one.pid for one in processes[container.pid])
            self._next_roll_call = now / 1e9 + _ROLL_CALL_SECONDS
        for container in governed:
            if container.governor.next_look <= now + SHORTEST_STOP_NS:
                container.governor.look(now)

    def _expire_executions(self) -> None:
        now = time.monotonic()
        for execution in self._executions.values():
            if now >= execution.deadline and not execution.timed_out:
                execution.timed_out = True
                execution.deadline = now + _IDLE_SECONDS
                execution.kill()

    def _kill_everything(self) -> None:
        for container in self._containers.values():
            container.kill()
        for execution in self._executions.values():
            execution.kill()
        # This process is the reaper of all that they started, whatever it did to hide.
        for _ in range(KILL_ROUNDS):
            living = descendants(process_table(), os.getpid())
            if not living:
                return
            for process in living:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)


class _Action(ctypes.Structure):
    """``struct sigaction`` of Linux's C libraries."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def _hear_of_ends_only() -> None:
    """SIGCHLD when a child ends, not each time that one is stopped or continued."""
    action, libc = _Action(), ctypes.CDLL(None)
    if libc.sigaction(signal.SIGCHLD, None, ctypes.byref(action)) == 0:
        action.flags |= _SA_NOCLDSTOP
        libc.sigaction(signal.SIGCHLD, ctypes.byref(action), None)


def main(control_descriptor: int) -> None:
    """Serve the inherited socket until its other end is closed."""
    # Handlers, not SIG_IGN: what is ignored would be ignored by the containers as well.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    _hear_of_ends_only()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.set_inheritable(control_descriptor, False)
    with socket.socket(fileno=control_descriptor) as control:
        Shim(control).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
