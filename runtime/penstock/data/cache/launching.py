"""A cache for one program or one pod: a daemon of its own, unless the node has one already.

The daemon is a process beside the program and ends with whoever started it, however that ends. Its
socket has no file and its memory no name, so that nothing is left. A program without a cache runs
as ever: whatever cannot be started is told in one line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.base.enums import CacheForm
from penstock.base.parent_death import die_with_parent
from penstock.crds import environment as names
from penstock.data.cache import messages
from penstock.data.cache.client import CacheClient, CacheError
from penstock.data.cache.connections import Connections
from penstock.data.cache.locations import cache_socket
from penstock.data.cache.timeouts import ANSWER_SECONDS

logger = logging.getLogger(__name__)

START_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.05
END_SECONDS: Final = 5.0
_CODE: Final = "import sys; from penstock.data.cache.commands import cache; cache(sys.argv[1:])"


def serves(place: str, paths: Sequence[str]) -> bool:
    """Whether there is a daemon at a socket that has these paths."""
    try:
        report = CacheClient(place).command(messages.STAT)
    except CacheError:
        return False
    return set(paths) <= set(report)


def listens(place: str) -> bool:
    """Whether anybody is at a socket; costs little, and asks nothing."""
    try:
        Connections(place, ANSWER_SECONDS).connect().close()
    except OSError:
        return False
    return True


def start_daemon(
    place: str, memory: int, paths: Sequence[str], seconds: float = START_SECONDS
) -> subprocess.Popen[bytes] | None:
    """A daemon for this user's programs; None where it does not come up, which is logged.

    ``seconds``: for how long that is waited for.
    """
    command = [sys.executable, "-c", _CODE, "run", "--private", "--socket", place]
    command += ["--memory", str(memory), *(f"--paths={path}" for path in paths)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it makes one system call
        )
    except OSError as error:
        logger.warning("no cache: its process cannot be started: %s", error)
        return None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if serves(place, paths):
            return process
        if process.poll() is not None:
            break
        time.sleep(LOOK_SECONDS)
    if not serves(place, paths):  # another may have been quicker, and has the socket
        logger.warning("no cache: its process did not come up; files are read as without it")
    end(process)
    return None


def end(process: subprocess.Popen[bytes]) -> None:
    """End a daemon."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def beside_program(
    memory: int,
    paths: Sequence[str],
    environ: Mapping[str, str],
    form: CacheForm = CacheForm.RAW,
) -> Iterator[dict[str, str]]:
    """The environment of a program that reads these paths through a cache, while it is there."""
    place, process = cache_socket(environ), None
    if serves(place, paths):
        logger.info("the cache of this node, at %s, is used", place)
    else:
        place = f"@penstock-cache-{os.getpid()}-{os.urandom(8).hex()}"
        process = start_daemon(place, memory, paths)
        if process is None:
            yield dict(environ)
            return
    try:
        yield {
            **environ,
            names.CACHE_SOCKET: place,
            names.CACHE_PATHS: os.pathsep.join(paths),
            names.CACHE_FORM: form,
        }
    finally:
        if process is not None:
            end(process)
