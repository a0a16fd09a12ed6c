"""Which processes belong to a container, and what memory they hold, read from ``/proc``.

A container's processes are those of its main process's session, those descended from it, and
those that carry its mark in their environment: daemons that left both are found by the mark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

MARK = "PENSTOCK_CONTAINER_ID"
"""Environment variable, set on every process of a container, whose value is the container's id."""

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


def members(table: dict[int, Process], main_pid: int, container_id: str) -> list[Process]:
    """The living processes of a container, in no order."""
    mark = f"{MARK}={container_id}".encode()
    this = os.getpid()
    verdicts: dict[int, bool] = {}

    def belongs(pid: int) -> bool:
        process = table.get(pid)
        if process is None or pid == this:
            return False
        if pid in verdicts:
            return verdicts[pid]
        verdicts[pid] = False
        if process.session == main_pid or pid == main_pid:
            found = True
        elif process.parent == this:
            found = _carries(pid, mark)
        else:
            found = belongs(process.parent)
        verdicts[pid] = found
        return found

    return [process for pid, process in table.items() if process.is_alive and belongs(pid)]


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


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
