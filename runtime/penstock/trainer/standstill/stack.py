"""What a process was at, read from the stack that `faulthandler` writes; pure.

Python's own writer needs no lock of the interpreter and no rights, so it also shows a process that
sits in C code or in a deadlock. The kind is told by the innermost frame that belongs to one of the
places in which a training waits; where there is none, by whether the process uses its CPU.
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
    """

    state: str
    cpu_seconds: float
    frames: tuple[Frame, ...] = ()


def main_thread(written: str) -> tuple[Frame, ...]:
    """The frames of the main thread, from what `faulthandler` wrote once with ``all_threads``.

    The interpreter lists its threads from the newest to the oldest, which is the main one.
    """
    frames: list[Frame] = []
    for line in written.splitlines():
        if line.endswith("(most recent call first):"):
            frames = []
        elif (found := _FRAME.match(line)) is not None and len(frames) < MAX_FRAMES:
            path, number, function = found.groups()
            frames.append(Frame(path, int(number) if number.isdigit() else 0, function))
    return tuple(frames)


def moves_on(looks: Sequence[Look]) -> bool:
    """Whether a process was elsewhere in each of several looks: it works, if not at a step.

    The line of the innermost call is not looked at: it changes in a loop that ends never.
    """
    seen = [_place(look.frames) for look in looks if look.frames]
    return len(seen) > 1 and len(set(seen)) == len(seen)


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
