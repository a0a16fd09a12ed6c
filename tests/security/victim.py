"""A process that is attacked, and what that costs it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock_cluster.apiserver.certificates import Authority
from tests.patience import patient

DESCRIPTORS = 256
PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process has; of memory the most that it had until now."""

    memory_bytes: int
    threads: int
    descriptors: int


class Victim:
    """One process with a listener."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        address: str,
        *,
        limit: int,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.log_path = folder / "victim.log"
        own = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        own |= {"PENSTOCK_JOB_TOKEN": "secret", "PYTHONUNBUFFERED": "1", **(environ or {})}
        own.pop("KUBECONFIG", None)
        limited = ["prlimit", f"--nofile={limit}:{limit}", *command]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                limited,
                cwd=folder,
                env=own,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.address = self._read(address)

    def _read(self, pattern: str) -> str:
        while line := self._line():
            if found := re.search(pattern, line):
                return next(group for group in found.groups() if group)
        raise AssertionError(f"it did not begin: {self.log_path.read_text()[-2000:]}")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, text: str = "work") -> str:
        """Have it do its work once."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self._line().strip()

    def cost(self) -> Cost:
        """What it has now."""
        process = psutil.Process(self.process.pid)
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak
        return Cost(int(peak[1]) * 1024, process.num_threads(), process.num_fds())

    def log_lines(self) -> int:
        """How much it has said."""
        with self.log_path.open("rb") as log:
            return sum(1 for _ in log)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate(timeout=20)


@contextmanager
def program(kind: str, folder: Path) -> Iterator[Victim]:
    """A program with one listener."""
    run = [sys.executable, str(PROGRAM), kind]
    with contextlib.closing(Victim(run, folder, r"^(\S.*)$", limit=1024)) as victim:
        yield victim


@contextmanager
def command(arguments: list[str], folder: Path) -> Iterator[Victim]:
    """A command of ours."""
    run = [sys.executable, "-m", "penstock.cli", *arguments]
    pattern = r"https?://([^\s,]+)"
    with contextlib.closing(Victim(run, folder, pattern, limit=DESCRIPTORS)) as victim:
        yield victim


@contextmanager
def command_with_tls(arguments: list[str], folder: Path) -> Iterator[Victim]:
    """The same, with a certificate."""
    Authority().write_serving(folder, "127.0.0.1")
    certificate = (
        f"--tls-certificate={folder / 'server.pem'}",
        f"--tls-key={folder / 'server.key'}",
    )
    with command([*arguments, *certificate], folder) as victim:
        yield victim


@contextmanager
def slim_command(arguments: list[str], folder: Path) -> Iterator[Victim]:
    """A command of ours where httptools is not installed, as in the images of jobs."""
    (folder / "httptools.py").write_text("raise ImportError('not installed here')\n")
    run = [sys.executable, "-m", "penstock.cli", *arguments]
    environ = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    victim = Victim(run, folder, r"https?://([^\s,]+)", limit=DESCRIPTORS, environ=environ)
    with contextlib.closing(victim):
        yield victim


def eventually(true: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + patient(seconds)
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
