"""A job of plain processes: a trainer, workers and servers, run as a cluster would run its pods.

Shared by the benchmarks and the tests: what is measured is what is tested.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from penstock.crds import environment as names
from penstock.job.call_auth import CallAuth

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "test-token"
RESULT = re.compile(r"penstock-result (\{.*\})")


def kill_tree(pid: int) -> list[psutil.Process]:
    """Kill a process and all that it has started, whatever session that is in; as a pod's end.

    Returns: what was killed, and may take a moment to be gone.
    """
    tree: list[psutil.Process] = []
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    for process in tree:
        with suppress(psutil.Error):
            process.kill()
    return tree


class Job:
    """Starts, kills and watches the processes of one job. Use `running_job`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self.trainer: subprocess.Popen[bytes] | None = None
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.incarnations: dict[int, int] = {}
        self.servers: dict[int, subprocess.Popen[bytes]] = {}
        self.server_incarnations: dict[int, int] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        self._trainer_lives = 0
        # One client for all polls: to make one costs more CPU than the trainer's answer.
        self._http = httpx.Client(auth=CallAuth(TOKEN), trust_env=False)

    def start_trainer(self, *options: str, state: bool = True) -> None:
        """Start the trainer, on the same port as before if it ran before."""
        port = self.address.rpartition(":")[2] or "0"
        arguments = ["trainer", f"--port={port}", *options]
        if state:
            arguments.append(f"--state-dir={self.folder / 'state'}")
        log = self.folder / f"trainer-{self._trainer_lives}.log"
        self._trainer_lives += 1
        self.trainer = self._popen(arguments, {names.JOB_TOKEN: TOKEN}, log)
        found = self.wait_for(
            lambda: re.search(r"listening on http://(\S+)", log.read_text()), 20, "the trainer"
        )
        self.address = found[1]

    def start_worker(
        self,
        rank: int,
        *command: str,
        environ: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """Start the next incarnation of a worker; ``options``: of ``penstock run``."""
        incarnation = self.incarnations.get(rank, -1) + 1
        self.incarnations[rank] = incarnation
        own = {
            names.JOB_TOKEN: TOKEN,
            names.TRAINER_ADDRESS: self.address,
            names.ROLE: "worker",
            names.RANK: str(rank),
            names.INCARNATION: str(incarnation),
            names.POD_IP: f"127.0.9.{rank + 1}",
            **(environ or {}),
        }
        self.workers[rank] = self._popen(
            ["run", *options, "--", *command], own, self.log_path(rank)
        )

    def start_server(self, rank: int, *options: str) -> None:
        """Start the next incarnation of a parameter server."""
        incarnation = self.server_incarnations.get(rank, -1) + 1
        self.server_incarnations[rank] = incarnation
        environ = {
            names.JOB_TOKEN: TOKEN,
            names.TRAINER_ADDRESS: self.address,
            names.ROLE: "ps",
            names.RANK: str(rank),
            names.INCARNATION: str(incarnation),
            names.POD_IP: f"127.0.{10 + incarnation % 200}.{rank + 1}",
        }
        log = self.folder / f"ps-{rank}-{incarnation}.log"
        self.servers[rank] = self._popen(["ps", *options], environ, log)

    def kill_server(self, rank: int) -> None:
        """Kill a parameter server at once."""
        self.servers[rank].kill()
        self.servers.pop(rank).wait(10)

    def drain_server(self, rank: int) -> subprocess.Popen[bytes]:
        """Ask a parameter server to go."""
        process = self.servers.pop(rank)
        process.send_signal(signal.SIGTERM)
        return process

    def log_path(self, rank: int, incarnation: int | None = None) -> Path:
        """The log of a worker: of its newest incarnation unless told otherwise."""
        number = self.incarnations[rank] if incarnation is None else incarnation
        return self.folder / f"worker-{rank}-{number}.log"

    def kill(self, rank: int) -> None:
        """Kill a worker at once: its agent, and with it the training process."""
        self.workers[rank].kill()
        self.workers[rank].wait(10)

    def drain(self, rank: int) -> None:
        """Ask a worker to go."""
        self.workers[rank].send_signal(signal.SIGTERM)

    def training_process(self, rank: int) -> psutil.Process:
        """The program that a worker's agent runs."""
        return psutil.Process(self.workers[rank].pid).children()[0]

    def kill_trainer(self) -> None:
        """Kill the trainer at once."""
        assert self.trainer is not None
        self.trainer.kill()
        self.trainer.wait(10)

    def summary(self) -> dict[str, Any]:
        """What the trainer says about the job."""
        response = self._http.get(f"http://{self.address}/v1/summary")
        response.raise_for_status()
        summary: dict[str, Any] = response.json()
        return summary

    def wait_for_step(self, step: int, timeout: float = 40) -> dict[str, Any]:
        """Wait until so many steps are committed."""
        return self.wait_for_summary(lambda s: s["committed_steps"] >= step, timeout)

    def wait_for_world(self, size: int, timeout: float = 40) -> dict[str, Any]:
        """Wait until a group of this size trains."""
        return self.wait_for_summary(lambda s: s["world_size"] == size, timeout)

    def wait_for_summary(
        self, ready: Callable[[dict[str, Any]], bool], timeout: float
    ) -> dict[str, Any]:
        """Wait for a summary of a kind."""

        def look() -> dict[str, Any] | None:
            try:
                summary = self.summary()
            except httpx.TransportError:
                return None
            return summary if ready(summary) else None

        return self.wait_for(look, timeout, "the summary")

    def wait_for(self, look: Callable[[], Any], timeout: float, what: str) -> Any:
        """Poll until ``look`` finds something; fails with all logs."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if found := look():
                return found
            time.sleep(0.1)
        raise AssertionError(f"{what}: not within {timeout} s\n{self.logs()}")

    def exit_codes(self, timeout: float = 60) -> dict[int, int]:
        """Wait for the end of all workers; their exit codes by rank."""
        deadline = time.monotonic() + timeout
        codes = {}
        for rank, process in self.workers.items():
            try:
                codes[rank] = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"worker {rank} did not end\n{self.logs()}") from None
        return codes

    def result(self) -> dict[str, Any]:
        """The figures that the chief printed."""
        found = [
            json.loads(match[1])
            for path in sorted(self.folder.glob("worker-*.log"))
            for match in RESULT.finditer(path.read_text(errors="replace"))
        ]
        assert found, f"no result\n{self.logs()}"
        result: dict[str, Any] = found[-1]
        return result

    def logs(self) -> str:
        """The ends of all logs, for the message of a failed test."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        """Kill whatever still runs."""
        self._http.close()
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(10)

    def _popen(
        self, arguments: list[str], environ: dict[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", *arguments],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self.started.append(process)
        return process


@contextmanager
def running_job(folder: Path) -> Iterator[Job]:
    """A job whose processes are gone at the end of the block."""
    job = Job(folder)
    try:
        yield job
    finally:
        job.close()


def run_alone(*command: str, environ: dict[str, str] | None = None, timeout: float = 300) -> str:
    """Run a training script without a trainer, to its end; what it printed."""
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    environ = {**outside, **(environ or {})}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, timeout=timeout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
