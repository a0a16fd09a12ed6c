"""What a process was at, read from the stack that `faulthandler` writes; pure.

Python's own writer needs no lock of the interpreter and no rights, so it also shows a process that
sits in C code or in a deadlock. It writes of the main thread, in that thread: of others it would
read what they change meanwhile, and end a process that works. The kind is told by the innermost
frame that belongs to one of the places in which a training waits; where there is none, by whether
the process uses its CPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Final

from penstock.job.protocol import MAX_FRAMES

BUSY: Final = 0.5
"""Share of one core above which a process computes, and waits for nobody; one that is ready to run
whenever it is looked at would, if others left it a core."""

MOVING_CPU: Final = 0.1
"""Share of one core that a process and what it has started use together where they work; the
threads of ours that go on in one that stands still use a fiftieth."""
MOVING_BYTES: Final = 1 << 17
"""Read and written between the first and the last look; the stacks themselves are some 10 kB."""
MOVING_WAKEUPS: Final = 5.0
"""A second, of the main thread: data that comes over a network wakes it, and so does looking again
and again whether another one is ready; a lock does not."""

_FILE_SYSTEM: Final = re.compile(
    r"fuse|nfs|cifs|smb|ceph|lustre|ll_|gpfs|beegfs|request_wait_answer|rpc_|folio_wait|io_schedule"
)
"""Functions of the kernel: one call of a file system that is slow moves nothing before it ends."""

_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_LIBRARY: Final = re.compile(
    r"/site-packages/|/dist-packages/|/lib/python\d|^<|"
    r"/penstock/(base|data|job|parameter_server|trainer)/"
)
_CHECKPOINT: Final = re.compile(
    r"torch/serialization\.py|torch/distributed/checkpoint/|safetensors/|"
    r"penstock/trainer/(checkpoint|snapshot|stored)"
)
_COLLECTIVE: Final = re.compile(
    r"torch/distributed/|torch/nn/parallel/distributed\.py|penstock/trainer/group/"
)
_DATA: Final = re.compile(r"torch/utils/data/|penstock/data/|penstock/trainer/loader/")
_BACKWARD: Final = re.compile(r"torch/autograd/")
"""What sums gradients over processes waits within the backward pass."""
_INNERMOST: Final = 4


class Kind(StrEnum):
    """What holds a process up."""

    STOPPED = "it is stopped (a signal, or a debugger)"
    CHECKPOINT = "it saves or loads a checkpoint"
    DATA = "it waits for data"
    COLLECTIVE = "it waits for the other processes"
    WAITS = "it waits for a lock, a file or the network"
    LOOPS = "it computes, and gets no further"
    UNKNOWN = "its stack could not be read"


@dataclass(frozen=True, slots=True)
class Frame:
    """One call."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.path}:{self.line})"

    @property
    def is_library(self) -> bool:
        """Whether it is none of the program's own."""
        return bool(_LIBRARY.search(self.path))


@dataclass(frozen=True, slots=True)
class Look:
    """One process at one moment.

    Attributes:
        state: as Linux has it: R, S, D, T, t, Z.
        cpu_seconds: that it has used so far.
        frames: of its main thread, the innermost first; empty: they could not be read.
        tree_cpu_seconds: the same of it and of what it has started.
        tree_io_bytes: that these have read and written so far, from files and pipes.
        wakeups: how often its main thread has gone to sleep by itself so far.
        sleeps_in: the kernel's function in which its main thread sleeps; "": not known.
        wanders: whether its main thread was in several places within this look.
    """

    state: str
    cpu_seconds: float
    frames: tuple[Frame, ...] = ()
    tree_cpu_seconds: float = 0.0
    tree_io_bytes: int = 0
    wakeups: int = 0
    sleeps_in: str = ""
    wanders: bool = False


def main_thread(written: str) -> tuple[Frame, ...]:
    """The frames of the main thread, from what `faulthandler` wrote of it once."""
    frames: list[Frame] = []
    for line in written.splitlines():
        if (found := _FRAME.match(line)) is not None and len(frames) < MAX_FRAMES:
            path, number, function = found.groups()
            frames.append(Frame(path, int(number) if number.isdigit() else 0, function))
    return tuple(frames)


def moves_on(looks: Sequence[Look]) -> bool:
    """Whether a process was elsewhere in each of several looks: it works, if not at a step.

    The line of the innermost call is not looked at: it changes in a loop that ends never.
    """
    seen = [_place(look.frames) for look in looks if look.frames]
    return len(seen) > 1 and len(set(seen)) == len(seen)


def wanders(looks: Sequence[Look]) -> bool:
    """Whether a process was seen in several places: it may work, or be in a loop of many calls.

    An evaluation returns to the same few places with every batch.
    """
    return are_elsewhere([look.frames for look in looks]) or any(look.wanders for look in looks)


def are_elsewhere(frames: Sequence[tuple[Frame, ...]]) -> bool:
    """Whether these stacks of one process show several places, as `wanders` has it."""
    return len({_place(one) for one in frames if one}) > 1


def movement(looks: Sequence[Look], seconds: float) -> str:
    """By what its machine says that a process moves, if not at a step; "" where it does not.

    Sums count whichever way they change: of a process that was started, and has ended since, what
    it used is gone from them.

    Args:
        looks: the newest last.
        seconds: between the first and the last.
    """
    if len(looks) < 2 or seconds <= 0:
        return "it was not looked at twice"
    first, last = looks[0], looks[-1]
    states = {look.state for look in looks}
    if "t" in states:
        return "a debugger holds it"
    if "D" in states:
        return "it waits for a disk, and could not be ended"
    if any(_FILE_SYSTEM.search(look.sleeps_in) for look in looks):
        return "it waits for a file system"
    if states & {"Z", "X"}:
        return "it has ended"
    if abs(last.tree_cpu_seconds - first.tree_cpu_seconds) > MOVING_CPU * seconds:
        return "it computes, or what it has started does"
    if abs(last.tree_io_bytes - first.tree_io_bytes) > MOVING_BYTES:
        return "it reads or writes, or what it has started does"
    if last.wakeups - first.wakeups > MOVING_WAKEUPS * seconds:
        return "it is woken again and again, as by data that come over a network"
    return ""


def kind_of(looks: Sequence[Look], seconds: float, world_size: int) -> Kind:
    """What holds a process up.

    Args:
        looks: the newest last; none: nothing is known of it.
        seconds: between the first and the last.
        world_size: processes in its group.
    """
    if not looks:
        return Kind.UNKNOWN
    last = looks[-1]
    if last.state in ("T", "t"):
        return Kind.STOPPED
    if not last.frames:
        return Kind.UNKNOWN
    used = seconds > 0 and last.cpu_seconds - looks[0].cpu_seconds > BUSY * seconds
    busy = used or (len(looks) > 1 and all(look.state == "R" for look in looks))
    inner = list(takewhile(lambda frame: frame.is_library, last.frames))
    if any(_CHECKPOINT.search(frame.path) for frame in inner):
        return Kind.CHECKPOINT
    # Wrappers of a model are around what it computes, too, so that only what is innermost counts.
    waits = any(_COLLECTIVE.search(frame.path) for frame in inner[:_INNERMOST])
    sums = any(_BACKWARD.search(frame.path) for frame in inner[:_INNERMOST]) and world_size > 1
    if (waits or sums) and not busy:
        return Kind.COLLECTIVE
    if any(_DATA.search(frame.path) for frame in last.frames):
        return Kind.DATA
    return Kind.LOOPS if busy else Kind.WAITS


def place_of(frames: Sequence[Frame]) -> Frame | None:
    """The innermost call of the program's own, else the innermost; None without a stack."""
    own = next((frame for frame in frames if not frame.is_library), None)
    return own or (frames[0] if frames else None)


def _place(frames: tuple[Frame, ...]) -> tuple[tuple[str, str, int], ...]:
    if not frames:
        return ()
    inner, *outer = frames
    return (
        (inner.path, inner.function, 0),
        *((one.path, one.function, one.line) for one in outer),
    )
