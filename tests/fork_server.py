"""Processes that begin with PyTorch loaded, for tests that start many of them.

A process that loads PyTorch computes for about two seconds before it does anything of its own.
Those that are started here are forks of one that has loaded it. Otherwise they are as if ``python``
had been called with the same arguments, environment and folder: the program is their ``__main__``,
they have an end of the interpreter, a pid, signals and an exit code of their own.

What is not the same: their parent is the server, whose command line they have; their strings have
the hashes of its strings; and they import no module of PyTorch for the first time. So a test of how
a program is started, or of what happens as it imports PyTorch (`penstock run`), starts it itself.

The server begins with the first of these processes, and ends with the process of the tests.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from penstock.data.hooked import INTERCEPT

LOADED: Final = (
    "torch",
    "torch.utils.data",
    "numpy",
    "penstock.data.serving.worker",
    "penstock.data.torch_loading.torch_loader",
    "psutil",
    "pytest",
)
"""What the server has imported: what data workers need, and modules of tests which they open."""
SERVER: Final = __file__
"""In its command line."""
MESSAGE_BYTES: Final = 1 << 20
SECONDS: Final = 120.0
"""Until the server has loaded everything, on a busy machine."""
ENVIRON: Final = dict(os.environ)
"""Of the server: before any test has changed it."""


class Forked:
    """One of these processes: what tests use of `subprocess.Popen`, with the same meaning."""

    def __init__(self, pid: int, descriptor: int, status: int, stdout: IO[str] | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._descriptor, self._status = descriptor, status

    def poll(self) -> int | None:
        """Its exit code, minus the signal that killed it; None while it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; `subprocess.TimeoutExpired` where that takes longer."""
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._status, select.POLLIN)
            if not waiting.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            said = os.read(self._status, 16)
            assert said, "the fork server has ended"
            self.returncode = int(said)
            os.close(self._status)
            os.close(self._descriptor)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Where it lives."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    start_new_session: bool = False,
) -> Forked:
    """As ``Popen([sys.executable, *arguments], ...)``: a script's path or ``-c`` with a program.

    ``stdout`` may be ``subprocess.PIPE``, and is text then.
    """
    environ = dict(os.environ if env is None else env)
    if INTERCEPT in environ or environ.get("PYTHONPATH") != ENVIRON.get("PYTHONPATH"):
        raise ValueError("such a program has to be started, not forked: its imports are others")
    asked = {
        "arguments": list(arguments),
        "folder": str(cwd or Path.cwd()),
        "environ": environ,
        "session": start_new_session,
    }
    opened: list[int] = []
    reader: IO[str] | None = None
    if stdout == subprocess.PIPE:
        read, stdout = os.pipe()
        opened.append(stdout)
        reader = os.fdopen(read)
    out, errors = (
        default if of is None else of if isinstance(of, int) else of.fileno()
        for of, default in ((stdout, 1), (stderr, 2))
    )
    status, told = os.pipe()
    opened.append(told)
    try:
        pid, descriptor = _server().fork(json.dumps(asked).encode(), [out, errors, told])
    finally:
        for one in opened:
            os.close(one)
    return Forked(pid, descriptor, status, reader)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float,
    start_new_session: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run([sys.executable, *arguments], capture_output=True, text=True, ...)``."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = start(
            arguments,
            cwd=cwd,
            env=env,
            stdout=out,
            stderr=errors,
            start_new_session=start_new_session,
        )
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait(20)
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read(), errors.read())


class _Server:
    """The connection to the server, which is a process of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-P", SERVER, str(its.fileno())],
                pass_fds=[its.fileno()],
                env=ENVIRON,
                stdin=subprocess.DEVNULL,
            )
        self._channel.settimeout(SECONDS)
        atexit.register(self._end)

    def fork(self, asked: bytes, descriptors: list[int]) -> tuple[int, int]:
        """The pid of a new process, and a descriptor of it."""
        with self._lock:
            socket.send_fds(self._channel, [asked], descriptors)
            said, got, _, _ = socket.recv_fds(self._channel, 64, 1)
        assert said, "the fork server has ended"
        return int(said), got[0]

    def _end(self) -> None:
        self._channel.close()
        self._process.wait(20)


@functools.cache
def _server() -> _Server:
    return _Server()


def _next_fork(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Serve; returns in a fork, with what it is to be, and its descriptors."""
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    forks: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in waiting.poll():
            if ready in forks:
                pid, told = forks.pop(ready)
                _, status = os.waitpid(pid, 0)
                # Whoever started it may be gone.
                with contextlib.suppress(BrokenPipeError):
                    os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
                waiting.unregister(ready)
                os.close(told)
                os.close(ready)
                continue
            asked, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 3)
            if not asked:
                os._exit(0)  # the tests have ended
            if (pid := os.fork()) == 0:
                channel.close()
                for one, (_, told) in forks.items():
                    os.close(one)
                    os.close(told)
                return json.loads(asked), descriptors
            descriptor = os.pidfd_open(pid)
            forks[descriptor] = (pid, descriptors[2])
            waiting.register(descriptor, select.POLLIN)
            for one in descriptors[:2]:
                os.close(one)
            socket.send_fds(channel, [str(pid).encode()], [descriptor])


def _become(asked: dict[str, Any], descriptors: list[int]) -> tuple[str, types.CodeType]:
    """Take over what it is to be; returns the program's file and its code."""
    import numpy as np
    import torch

    out, errors, told = descriptors
    for of, number in ((out, 1), (errors, 2)):
        os.dup2(of, number)
    for one in (out, errors, told):
        os.close(one)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.random.seed()
    torch.seed()
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    first, *rest = asked["arguments"]
    if first == "-c":
        program, *rest = rest
        sys.argv = ["-c", *rest]
        sys.path.insert(0, "")
        return "", compile(program, "<string>", "exec")
    sys.argv = [first, *rest]
    sys.path.insert(0, str(Path(first).resolve().parent))
    return first, compile(Path(first).read_text(), first, "exec")


def _main() -> None:
    for name in LOADED:
        __import__(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ended by whoever started it
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        file, code = _become(*_next_fork(channel))
    main = types.ModuleType("__main__")
    if file:
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


if __name__ == "__main__":
    _main()
