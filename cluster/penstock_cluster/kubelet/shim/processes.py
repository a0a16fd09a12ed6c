"""Which processes belong to a container, and what memory they hold, read from ``/proc``.

A container's processes are those of its main process's session, those descended from it, and
daemons that left both. These are found by what they inherited: a resource limit that nothing uses,
which also who clears the environment keeps, or the container's mark in the environment.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

MARK = "PENSTOCK_CONTAINER_ID"
"""Environment variable, set on every process of a container, whose value is the container's id."""

_UNUSED_LIMIT = 10
"""``RLIMIT_LOCKS``: enforced by Linux 2.4.0 to 2.4.24 alone, inherited still."""
_SEAL_BITS = 2**62 - 1

_PREFIX = f"{MARK}=".encode()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process table."""

    pid: int
    state: str
    parent: int
    session: int
    resident_bytes: int

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


def process_table() -> dict[int, Process]:
    """Every process of this machine by pid; those that end meanwhile are left out."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            process = _read_process(entry)
            if process is not None:
                table[process.pid] = process
    return table


def _read_process(pid: str) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may hold anything, spaces and parentheses too.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=int(pid),
        state=chr(fields[0][0]),
        parent=int(fields[1]),
        session=int(fields[3]),
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def by_container(
    table: dict[int, Process], containers: Mapping[int, str]
) -> dict[int, list[Process]]:
    """The living processes of each container, in no order; all found in one pass.

    ``containers``: id by main process; the answer has the same keys.
    """
    mains = {identity.encode(): pid for pid, identity in containers.items()}
    sealed = {_seal(identity): pid for pid, identity in containers.items()}
    this = os.getpid()
    owners: dict[int, int | None] = {}

    def owner(pid: int) -> int | None:
        process = table.get(pid)
        if process is None or pid == this:
            return None
        if pid in owners:
            return owners[pid]
        owners[pid] = None
        if pid in containers:
            found: int | None = pid
        elif process.session in containers:
            found = process.session
        elif process.parent == this:
            found = sealed.get(_seal_of(pid)) or mains.get(_mark(pid))
        else:
            found = owner(process.parent)
        owners[pid] = found
        return found

    members: dict[int, list[Process]] = {pid: [] for pid in containers}
    for pid, process in table.items():
        main = owner(pid) if process.is_alive else None
        if main is not None:
            members[main].append(process)
    return members


def seal_this_process(identity: str) -> None:
    """Have this process and all that it will start found as a container's, whatever they do."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(_UNUSED_LIMIT)
        resource.setrlimit(_UNUSED_LIMIT, (_seal(identity), hard))


def _seal(identity: str) -> int:
    """A number for a container; another one in every shim, also in one that another one runs."""
    return hash(identity) & _SEAL_BITS


def _seal_of(pid: int) -> int:
    try:
        return resource.prlimit(pid, _UNUSED_LIMIT)[0]
    except (OSError, ValueError):
        return -1


def descendants(table: dict[int, Process], ancestor: int) -> list[Process]:
    """The living processes below one, in no order."""
    below: dict[int, list[Process]] = {}
    for process in table.values():
        below.setdefault(process.parent, []).append(process)
    found, left = [], [ancestor]
    while left:
        children = below.get(left.pop(), ())
        found += [child for child in children if child.is_alive]
        left += [child.pid for child in children]
    return found


def _mark(pid: int) -> bytes:
    """The id of the container that a process was started in; empty if it tells none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return b""
    return next((one[len(_PREFIX) :] for one in variables if one.startswith(_PREFIX)), b"")


def memory_in_use(processes: list[Process], limit_bytes: int) -> int:
    """The container's memory as its control group would count it, in bytes.

    Exact only near and above ``limit_bytes``: resident pages are an upper bound that costs
    nothing, and only when it is beyond the limit are shared pages told apart.
    """
    bound = sum(process.resident_bytes for process in processes)
    if bound <= limit_bytes:
        return bound
    return sum(_unshared_bytes(process) for process in processes)


def _unshared_bytes(process: Process) -> int:
    """Anonymous and shared memory in proportion to its users; files of programs do not count."""
    total_kib = 0
    found = False
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                    total_kib += int(line.split()[1])
                    found = True
    except FileNotFoundError:
        return 0 if not os.path.exists(f"/proc/{process.pid}") else process.resident_bytes
    except OSError:
        return process.resident_bytes
    return total_kib * 1024 if found else process.resident_bytes


def every_thread(pid: int) -> list[int]:
    """The thread ids of a process; empty when it has ended."""
    try:
        return [int(entry) for entry in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def handles(pid: int, signal_number: int) -> bool:
    """Whether the process has a handler of its own for the signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signal_number - 1) & 1)
    except OSError:
        pass
    return False
