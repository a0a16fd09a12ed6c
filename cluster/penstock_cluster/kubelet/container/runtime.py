"""The kubelet's side of the :mod:`shim`: start a process, learn how it ended, act on it.

Guarantees: every started container's ``exited`` future is resolved exactly once, also when the
shim is killed (then with ``lost``); leaving the context leaves no process behind.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from errno import EACCES, ENOENT
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock_cluster.kubelet.container.shim_connection import ShimConnection

_INSPECT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container's main process ended; ``code`` is 128 + ``signal`` after a signal."""

    code: int
    signal: int = 0
    out_of_memory: bool = False
    lost: bool = False
    """Nobody saw it end: the shim was gone."""


class ContainerStartError(Exception):
    """The process could not be started; the message is a container runtime's."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Everything that the shim needs to know to start a container."""

    id: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    log: Path
    log_bytes: int = 10 << 20
    cores: tuple[int, ...] = ()
    memory_bytes: int | None = None
    milli_cpu: int | None = None
    """The CPU that it may use in each period; None: as much as its cores have."""
    percent: int | None = None
    """The speed of its machine; None: that of this one."""
    is_pid_one: bool = False
    """Ignore SIGTERM unless it is handled, as the first process of a PID namespace does."""


@dataclass(slots=True)
class Running:
    """A started container."""

    id: str
    pid: int
    exited: asyncio.Future[Exit] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of a command run beside a container."""

    code: int
    output: str
    timed_out: bool


class Runtime:
    """Starts the shim on entry; kills all that it started on exit."""

    def __init__(self) -> None:
        self._shim = ShimConnection(self._take, self._lose_everything)
        self._starting: dict[str, asyncio.Future[Running]] = {}
        self._running: dict[str, Running] = {}
        self._executing: dict[str, asyncio.Future[Execution]] = {}
        self._inspecting: dict[str, list[asyncio.Future[list[int]]]] = {}
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self._shim.ensure()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._shim.close()

    @property
    def shim_pid(self) -> int | None:
        """The process id of the shim; None: there is none."""
        return self._shim.pid

    async def start(self, spec: ProcessSpec) -> Running:
        """Start a container; raises ContainerStartError when its program cannot be run."""
        await self._shim.ensure()
        future: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        self._starting[spec.id] = future
        self._shim.send(
            {
                "op": "start",
                "id": spec.id,
                "argv": list(spec.argv),
                "env": dict(spec.env),
                "cwd": spec.cwd,
                "log": str(spec.log),
                "log_bytes": spec.log_bytes,
                "cores": list(spec.cores),
                "memory_bytes": spec.memory_bytes,
                "milli_cpu": spec.milli_cpu,
                "percent": spec.percent,
                "is_pid_one": spec.is_pid_one,
            }
        )
        try:
            return await future
        except asyncio.CancelledError:
            # The request is on its way: whatever comes of it must not stay.
            self._shim.send({"op": "kill", "id": spec.id})
            raise
        except _RawStartError as failure:
            raise ContainerStartError(failure.describe(spec)) from None

    async def execute(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, timeout_seconds: float
    ) -> Execution:
        """Run a command to its end, killing it at the time-out."""
        await self._shim.ensure()
        name = f"exec-{next(self._numbers)}"
        future: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._executing[name] = future
        self._shim.send(
            {
                "op": "exec",
                "id": name,
                "argv": list(argv),
                "env": dict(env),
                "cwd": cwd,
                "timeout_seconds": timeout_seconds,
            }
        )
        return await future

    def terminate(self, container_id: str, number: int = signal.SIGTERM) -> None:
        """Send a signal to the main process, as when a pod is stopped."""
        self._shim.send({"op": "terminate", "id": container_id, "signal": int(number)})

    def kill(self, container_id: str, *, out_of_memory: bool = False) -> None:
        """SIGKILL to every process of the container."""
        self._shim.send({"op": "kill", "id": container_id, "out_of_memory": out_of_memory})

    def lose(self, container_id: str) -> None:
        """Forget a container: it is killed, and how it ended is not known."""
        running = self._running.pop(container_id, None)
        self.kill(container_id)
        if running is not None:
            _resolve(running.exited, Exit(code=137, signal=9, lost=True))

    def signal(self, container_id: str, number: int) -> None:
        """Send a signal to every process of the container."""
        self._shim.send({"op": "signal", "id": container_id, "signal": int(number)})

    def slow(self, container_id: str, percent: int | None) -> None:
        """Let the container run at ``percent`` of this machine's speed; None ends that."""
        self._shim.send({"op": "slow", "id": container_id, "percent": percent})

    def set_limits(
        self,
        container_id: str,
        cores: Sequence[int],
        memory_bytes: int | None,
        milli_cpu: int | None = None,
    ) -> None:
        """Move a running container to other cores and give it other limits."""
        request = {"op": "limits", "id": container_id, "cores": list(cores)}
        self._shim.send({**request, "memory_bytes": memory_bytes, "milli_cpu": milli_cpu})

    def set_largest_file(self, container_id: str, limit_bytes: int | None) -> None:
        """Let the container's files grow to this size only."""
        self._shim.send({"op": "largest-file", "id": container_id, "bytes": limit_bytes})

    async def pids(self, container_id: str) -> list[int]:
        """The process ids of a container, ascending; empty when it has ended."""
        if container_id not in self._running:
            return []
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._inspecting.setdefault(container_id, []).append(future)
        self._shim.send({"op": "inspect", "id": container_id})
        async with asyncio.timeout(_INSPECT_TIMEOUT_SECONDS):
            return await future

    def _take(self, event: dict[str, Any]) -> None:
        name = event["id"]
        match event["event"]:
            case "started":
                exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
                running = self._running[name] = Running(name, event["pid"], exited)
                _resolve(self._starting.pop(name, None), running)
            case "failed":
                future = self._starting.pop(name, None)
                if future is not None and not future.done():
                    failure = _RawStartError(event["errno"], event["error"], event["is_cwd"])
                    future.set_exception(failure)
            case "exited":
                end = Exit(event["code"], event["signal"], event["out_of_memory"])
                ended = self._running.pop(name, None)
                _resolve(ended.exited if ended else None, end)
                for waiting in self._inspecting.pop(name, []):
                    _resolve(waiting, [])
            case "executed":
                outcome = Execution(event["code"], event["output"], event["timed_out"])
                _resolve(self._executing.pop(name, None), outcome)
            case "inspected":
                for waiting in self._inspecting.pop(name, []):
                    _resolve(waiting, event["pids"])

    def _lose_everything(self) -> None:
        """The shim is gone and so are its containers: nobody may wait for them for ever."""
        for starting in self._starting.values():
            if not starting.done():
                starting.set_exception(_RawStartError(0, "container runtime is down", False))
        for running in self._running.values():
            _resolve(running.exited, Exit(code=137, signal=9, lost=True))
        for executing in self._executing.values():
            _resolve(executing, Execution(137, "container runtime is down", timed_out=False))
        for waiting in itertools.chain.from_iterable(self._inspecting.values()):
            _resolve(waiting, [])
        self._starting.clear()
        self._running.clear()
        self._executing.clear()
        self._inspecting.clear()


class _RawStartError(Exception):
    """What the system said, before it is put in a runtime's words."""

    def __init__(self, errno: int, error: str, is_cwd: bool) -> None:
        super().__init__(error)
        self.errno = errno
        self.error = error
        self.is_cwd = is_cwd

    def describe(self, spec: ProcessSpec) -> str:
        if self.is_cwd:
            why = f'chdir to cwd ("{spec.cwd}"): {self.error.lower()}'
        elif self.errno == ENOENT and "/" not in spec.argv[0]:
            why = f'exec: "{spec.argv[0]}": executable file not found in $PATH'
        elif self.errno in {ENOENT, EACCES}:
            why = f'exec: "{spec.argv[0]}": {self.error.lower()}'
        else:
            why = self.error
        return f"failed to create containerd task: failed to start container process: {why}"


def _resolve(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)
