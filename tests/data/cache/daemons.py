"""Real cache daemons for tests, and files for them."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.data.cache import messages
from penstock.data.cache.client import Answer, CacheClient, CacheError
from tests.patience import patient

CODE = "import sys; from penstock.data.cache.commands import cache; cache(sys.argv[1:])"


@dataclass
class Daemon:
    """One that runs."""

    place: str
    process: subprocess.Popen[str]

    def stat(self, path: Path) -> dict[str, Any]:
        """What it says of a path."""
        found: dict[str, Any] = CacheClient(self.place).command(messages.STAT)[str(path)]
        return found

    def wait_for(self, path: Path, **wanted: int) -> None:
        """Wait until its counts are these: what clients count themselves comes a little later."""
        until(lambda: wanted.items() <= self.stat(path).items(), lambda: self.stat(path))


def until(holds: Callable[[], bool], said: Callable[[], object] = lambda: "") -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + patient(20)
    while not holds():
        assert time.monotonic() < deadline, said()
        time.sleep(0.02)


@contextlib.contextmanager
def daemon(
    place: str, *paths: Path, memory: int = 1 << 20, more: list[str] | None = None
) -> Iterator[Daemon]:
    """A daemon of its own process, while it is needed."""
    command = [sys.executable, "-c", CODE, "run", "--socket", place, "--memory", str(memory)]
    command += [f"--paths={path}" for path in paths] + (more or [])
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: process.poll() is not None or _is_there(place))
        assert process.poll() is None, process.communicate()[1]
        yield Daemon(place, process)
    finally:
        process.kill()
        process.communicate()


def _is_there(place: str) -> bool:
    try:
        CacheClient(place).command(messages.STAT)
    except CacheError:
        return False
    return True


def files(folder: Path, count: int, size: int = 1000) -> dict[str, bytes]:
    """Make files of random bytes; their names and what is in them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(count)
    made = {f"{number}.bin": rng.randbytes(size) for number in range(count)}
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return made


def ask(client: CacheClient, folder: Path, name: str) -> Answer:
    """Ask for a file as a program would that has it open."""
    descriptor = os.open(folder / name, os.O_RDONLY)
    try:
        return client.fetch(descriptor, str(folder), name)
    finally:
        os.close(descriptor)


def read(client: CacheClient, folder: Path, name: str) -> bytes | None:
    """The bytes that the cache gives of a file."""
    content = ask(client, folder, name).content
    return None if content is None else bytes(content)


def place() -> str:
    """A socket without a file that nobody else has."""
    return f"@penstock-test-{os.getpid()}-{os.urandom(6).hex()}"
