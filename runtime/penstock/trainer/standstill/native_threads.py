"""Where each thread of a process is outside Python, from what Linux tells without stopping it.

`faulthandler` shows the Python frames alone, and nothing of threads that run no Python (those of
NCCL and gloo, for instance). Whole native stacks take a debugger, which pods hold neither rights
nor programs for. What any process may read of its own user's processes, in a ``restricted`` pod as
well, is the innermost place: the kernel's function in which a thread sleeps and, of the agent's
own descendants, the shared library from which it went there. Where the kernel forbids even that (a
``kernel.yama.ptrace_scope`` of 2 or 3), the library is left out.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from pathlib import Path
from typing import Final

MAX_THREADS: Final = 128
_MOST_MAPPINGS: Final = 20_000
_NAME: Final = 64
_MAPPING: Final = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. \S+ \S+ \S+ +(\S.*)")
"""One line of ``/proc/PID/maps``, of code that comes from a file."""
_CODE: Final = re.compile(r"0x([0-9a-f]{1,16})$")
"""The end of ``/proc/PID/task/TID/syscall``: where the code is that went to the kernel."""


def native_threads(pid: int, proc: Path = Path("/proc")) -> str:
    """One line for each thread, the first ones by their number; "" where the process is gone."""
    folder = proc / str(pid)
    try:
        tasks = sorted(int(path.name) for path in (folder / "task").iterdir())
    except OSError:
        return ""
    libraries = _Libraries(_read(folder / "maps"))
    lines = [_line(folder / "task" / str(task), libraries) for task in tasks[:MAX_THREADS]]
    if len(tasks) > MAX_THREADS:
        lines.append(f"and {len(tasks) - MAX_THREADS} threads more")
    return "\n".join(line for line in lines if line)


class _Libraries:
    """Which file is mapped where, in a process; by what ``/proc/PID/maps`` says."""

    def __init__(self, maps: str) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._names: list[str] = []
        for line in maps.splitlines()[:_MOST_MAPPINGS]:
            if (found := _MAPPING.match(line)) is not None:
                self._begins.append(int(found[1], 16))
                self._ends.append(int(found[2], 16))
                self._names.append(found[3].rpartition("/")[2][:_NAME])

    def at(self, address: int) -> str:
        """The name of the file with the code at an address; "" where there is none."""
        index = bisect_right(self._begins, address) - 1
        return self._names[index] if index >= 0 and address < self._ends[index] else ""


def _line(task: Path, libraries: _Libraries) -> str:
    stat = _read(task / "stat")
    if ")" not in stat:
        return ""
    name, state = _read(task / "comm").strip()[:_NAME], stat[stat.rindex(")") + 2 :][:1]
    sleeps_in = _read(task / "wchan").strip()[:_NAME]
    kernel = f", in the kernel's {sleeps_in}" if sleeps_in not in ("", "0") else ""
    code = _CODE.search(_read(task / "syscall").strip())  # "running" has none
    library = libraries.at(int(code[1], 16)) if code is not None else ""
    origin = f", from {library}" if library else ""
    return f"thread {task.name} ({name}): {state}{kernel}{origin}"


def _read(path: Path) -> str:
    """What Linux tells; "" where it does not, or not us."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
