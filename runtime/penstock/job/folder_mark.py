"""Who writes checkpoints to a folder: two jobs in one would delete each other's.

Each process that writes leaves a file there, its *mark*, and touches it every `BEAT_SECONDS`. That
of another job which is touched, or whose process is seen to live, keeps everybody else from writing
to the folder and from removing anything there. One that is not touched for `DEAD_SECONDS`, or whose
process is gone from this machine, is of a job that has ended, whose checkpoints whoever comes next
goes on from.

What counts as one job: the pods of an ElasticJob (its uid, whatever is started again), the
processes of one trainer outside a cluster, and else each process for itself. Times are those of the
folder's clock, by the marks alone: machines need not agree.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from penstock.crds import environment as names

BEAT_SECONDS: Final = 5.0
DEAD_SECONDS: Final = 20.0
_POLLS: Final = 40
_PREFIX: Final = ".writer-"
_MAX_BYTES: Final = 4096


class FolderInUseError(OSError):
    """Another job writes its checkpoints to the folder; says which."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            errno.EBUSY,
            f"{shown} writes its checkpoints there, too, and each would delete the other's: name "
            "another checkpoint_dir",
        )


@dataclass(frozen=True)
class Writer:
    """One process that writes.

    Attributes:
        job: equal for all processes of one job alone.
        shown: the same for people, and where it runs.
        machine: within which process numbers mean something; "": nothing is known.
        pid: its number there.
        started: when it was started, by that machine's clock; numbers are used again.
    """

    job: str
    shown: str
    machine: str
    pid: int
    started: str


def this_writer(environ: Mapping[str, str] = os.environ) -> Writer:
    """This process."""
    host, machine, pid = socket.gethostname(), _machine(), os.getpid()
    started = _started(pid)
    uid, trainer = environ.get(names.JOB_UID, ""), environ.get(names.TRAINER_ADDRESS, "")
    if uid:
        name = f"{environ.get(names.JOB_NAMESPACE, '')}/{environ.get(names.JOB_NAME, '')}"
        job, shown = uid, f"job {name} (uid {uid}, on {host})"
    elif trainer:
        job = f"{trainer} of {machine or host}" if _is_local(trainer) else trainer
        shown = f"the job of the trainer at {trainer} (on {host})"
    else:
        job, shown = f"{machine or host} {pid} {started}", f"process {pid} on {host}"
    return Writer(job, shown, machine, pid, started)


class FolderMark:
    """The mark of this process in one folder; none is there before it is claimed."""

    def __init__(
        self,
        folder: Path,
        writer: Writer | None = None,
        beat_seconds: float = BEAT_SECONDS,
        dead_seconds: float = DEAD_SECONDS,
    ) -> None:
        """``writer``: who asks; None: this process."""
        self._folder = folder
        self._writer = writer or this_writer()
        self._beat_seconds = beat_seconds
        self._dead_seconds = dead_seconds
        self._path = folder / f"{_PREFIX}{secrets.token_hex(8)}.json"
        self._release: weakref.finalize[[Path, threading.Event, int], FolderMark] | None = None

    @property
    def job(self) -> str:
        """As which job this process writes."""
        return self._writer.job

    def check(self) -> None:
        """Wait until it is known whether another job writes there, `DEAD_SECONDS` at most.

        Raises:
            FolderInUseError: One does.
            OSError: The folder cannot be written, or read.
        """
        marks = self._others()
        touched = {path: when for path, _, when in marks}
        deadline = time.monotonic() + self._dead_seconds
        while marks and time.monotonic() < deadline:
            time.sleep(self._dead_seconds / _POLLS)
            marks = [each for each in self._others() if each[0] in touched]
            for path, writer, when in marks:
                if when != touched[path]:
                    raise FolderInUseError(writer.shown)
        for path, _, _ in marks:  # of a clock that is ahead
            path.unlink(missing_ok=True)

    def claim(self) -> None:
        """Be a writer to the folder from now on.

        Raises:
            FolderInUseError: Another job may be; nothing was changed.
            OSError: The folder cannot be written, or read.
        """
        self._refuse_others()
        if self._release is not None and self._path.exists():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write(self._path)
        try:
            self._refuse_others()  # who came at the same time
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        if self._release is None:
            ended = threading.Event()
            self._release = weakref.finalize(self, _release, self._path, ended, os.getpid())
            threading.Thread(
                target=_beat,
                args=(self._path, ended, self._beat_seconds),
                name="penstock-checkpoint-mark",
                daemon=True,
            ).start()

    def close(self) -> None:
        """Write there no more."""
        if self._release is not None:
            self._release()
            self._release = None

    def _refuse_others(self) -> None:
        for _, writer, _ in self._others():
            raise FolderInUseError(writer.shown)

    def _others(self) -> list[tuple[Path, Writer, float]]:
        """Marks of other jobs that may still write, and when each was touched.

        Those of jobs that have ended are removed.
        """
        found = list(self._foreign())
        if not found:
            return []
        now, living = self._now(), []
        for path, writer in found:
            with contextlib.suppress(FileNotFoundError):
                touched = path.stat().st_mtime
                if _is_there(writer):
                    raise FolderInUseError(writer.shown)
                if _is_gone(writer) or now - touched > self._dead_seconds:
                    path.unlink()
                else:
                    living.append((path, writer, touched))
        return living

    def _foreign(self) -> Iterator[tuple[Path, Writer]]:
        for path in self._folder.glob(f"{_PREFIX}*.json"):
            writer = _read(path)
            if writer is not None and writer.job != self._writer.job:
                yield path, writer

    def _now(self) -> float:
        """By the folder's clock."""
        probe = self._folder / f"{_PREFIX}{secrets.token_hex(8)}.tmp"
        try:
            probe.touch(exist_ok=False)
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def _write(self, path: Path) -> None:
        """There as a whole or not at all."""
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(asdict(self._writer)))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _beat(path: Path, ended: threading.Event, seconds: float) -> None:
    """Touch a mark; one that somebody removed is made again when it is next claimed."""
    while not ended.wait(seconds):
        with contextlib.suppress(OSError):
            os.utime(path)


def _release(path: Path, ended: threading.Event, owner: int) -> None:
    if os.getpid() != owner:
        return  # a process that was forked
    ended.set()
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _read(path: Path) -> Writer | None:
    """What a mark says; None where it says nothing."""
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MAX_BYTES))
        return Writer(
            str(said["job"]),
            str(said["shown"]),
            str(said["machine"]),
            int(said["pid"]),
            str(said["started"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_gone(writer: Writer) -> bool:
    """Whether it is known that the process has ended."""
    here = bool(writer.machine) and writer.machine == _machine()
    return here and _started(writer.pid) != writer.started


def _is_there(writer: Writer) -> bool:
    """Whether it is known that the process lives."""
    here = bool(writer.machine) and writer.machine == _machine()
    return here and bool(writer.started) and _started(writer.pid) == writer.started


def _machine() -> str:
    """Where process numbers are the same as here: a start of a machine, and a container of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process was started; "": there is none, or nothing is known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return ""
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return ""
    return fields[19]


def _is_local(address: str) -> bool:
    """Whether an address means another machine to everybody."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
