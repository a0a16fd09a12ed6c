"""Who writes checkpoints to a folder: two jobs in one would delete each other's.

Each process that writes leaves a file there, its *mark*, and touches it every `BEAT_SECONDS`. That
of another job which is touched, or whose process is seen to live, keeps everybody else from writing
to the folder and from removing anything there; a mark that may not be read is another job's. One
that is not touched for `DEAD_SECONDS`, or whose process is gone from this machine, is of a job that
has ended, whose checkpoints whoever comes next goes on from. Who begins while a job ends waits for
it; who is about to write waits for nobody.

What counts as one job: the pods of an ElasticJob (its uid, whatever is started again), the
processes of one trainer outside a cluster (its token and port, or without a token its address),
and else each process for itself. Times are those of the folder's clock, by the marks alone:
machines need not agree.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
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
_PROCESSES: Final = Path("/proc")


class FolderInUseError(OSError):
    """Another job writes its checkpoints to the folder; says which."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            errno.EBUSY,
            f"{shown} writes its checkpoints there, too, and each would delete the other's",
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
    started = _started(pid) or ""
    uid, trainer = environ.get(names.JOB_UID, ""), environ.get(names.TRAINER_ADDRESS, "")
    if uid:
        name = f"{environ.get(names.JOB_NAMESPACE, '')}/{environ.get(names.JOB_NAME, '')}"
        job, shown = uid, f"job {name} (uid {uid}, on {host})"
    elif trainer:
        job = _trainer_job(trainer, environ.get(names.JOB_TOKEN, ""), machine or host)
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
        """Wait until whoever writes there has ended, `DEAD_SECONDS` at most.

        A mark that is touched within that time, and then no more, takes up to as long again, until
        its job counts as ended.

        Raises:
            FolderInUseError: Another job goes on writing there.
            OSError: The folder cannot be written, or read.
        """
        marks = self._others()
        begin = time.monotonic()
        seen: dict[Path, tuple[float, float]] = {}  # when each was touched, and when that was found
        while marks:
            now = time.monotonic()
            for path, writer, touched in marks:
                is_new = path not in seen or seen[path][0] != touched
                if is_new:
                    seen[path] = touched, now
                if now - begin > self._dead_seconds and (is_new or _is_there(writer)):
                    raise FolderInUseError(writer.shown)
                if now - seen[path][1] > self._dead_seconds and not _is_there(writer):
                    path.unlink(missing_ok=True)  # of a clock that is ahead
            time.sleep(self._dead_seconds / _POLLS)
            marks = self._others()

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
        self._remove_ended()
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
        """Marks of other jobs that write or may still do so, and when each was touched.

        Those of jobs that have ended are removed.
        """
        found = list(self._foreign())
        if not found:
            return []
        now, living = self._now(), []
        for path, writer in found:
            with contextlib.suppress(FileNotFoundError):
                touched = path.stat().st_mtime
                if self._has_ended(writer, now - touched):
                    path.unlink()
                else:
                    living.append((path, writer, touched))
        return living

    def _foreign(self) -> Iterator[tuple[Path, Writer]]:
        for path in self._folder.glob(f"{_PREFIX}*.json"):
            writer = None if path == self._path else _read(path)
            if writer is not None and writer.job != self._writer.job:
                yield path, writer

    def _remove_ended(self) -> None:
        """Remove what killed processes of this job have left, as far as the system allows it."""
        with contextlib.suppress(OSError):
            now = self._now()
            for path in self._folder.glob(f"{_PREFIX}*"):
                with contextlib.suppress(OSError):  # another one may be removing it, too
                    if path != self._path and self._is_left(path, now - path.stat().st_mtime):
                        path.unlink()

    def _is_left(self, path: Path, seconds: float) -> bool:
        """Whether a file that was not touched for so long is of this job, and of no use any more.

        Those that were to become a mark, or told the time, are nobody's.
        """
        if path.suffix == ".tmp":
            return seconds > self._dead_seconds
        writer = _read(path) if path.suffix == ".json" else None
        if writer is None or writer.job != self._writer.job:
            return False
        return self._has_ended(writer, seconds)

    def _has_ended(self, writer: Writer, seconds: float) -> bool:
        """Whether a writer whose mark was not touched for so long writes no more."""
        return _is_gone(writer) or (seconds > self._dead_seconds and not _is_there(writer))

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
    """What a mark says; None where it says nothing. Raises OSError: it may say something.

    One that may not be read is of a job that nothing is known of.
    """
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
    except PermissionError:
        return Writer("", f"who made {path.name}, which may not be read,", "", 0, "")
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _is_gone(writer: Writer) -> bool:
    """Whether it is known that the process has ended."""
    if not _is_here(writer):
        return False
    started = _started(writer.pid)
    return started is None or (bool(started and writer.started) and started != writer.started)


def _is_there(writer: Writer) -> bool:
    """Whether it is known that the process lives."""
    return _is_here(writer) and bool(writer.started) and _started(writer.pid) == writer.started


def _is_here(writer: Writer) -> bool:
    return bool(writer.machine) and writer.machine == _machine()


def _machine() -> str:
    """Where process numbers are the same as here: a start of a machine, and a container of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process was started; "": that is not shown; None: it has ended."""
    try:
        stat = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return "" if _exists(pid) else None  # those of other users may be hidden
    fields = stat.rpartition(")")[2].split()
    if fields and fields[0] in "ZX":
        return None
    return fields[19] if len(fields) > 19 else ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _trainer_job(address: str, token: str, here: str) -> str:
    """What the processes of one trainer have in common; ``here``: the machine of this one.

    The same trainer may have another address for each machine, but its job has one token. That of
    several trainings is often the same by mistake, their ports are not.
    """
    if token:
        port = address.rpartition(":")[2]
        told = f"penstock-folder-mark {port}".encode()
        return hmac.new(token.encode(), told, "sha256").hexdigest()
    return f"{address} of {here}" if _is_local(address) else address


def _is_local(address: str) -> bool:
    """Whether an address means another machine to everybody."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
