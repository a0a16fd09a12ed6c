"""What an error of a collective says about its group: pure, by the names of its type and its text.

PyTorch raises a RuntimeError for almost everything. Another group helps where a member was lost,
and where it is not known what happened it is worth trying; where the group cannot work as it is
configured, or this process has a fault of its own, every further group would fail alike.

The texts are those of NCCL (``ncclGetErrorString`` and the warnings that it keeps as its last
error), of gloo's TCP transport, and of PyTorch's process groups and stores around them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

MAX_WORDS: Final = 300
"""Characters of a cause: a line of the log, not a page."""


class Cause(StrEnum):
    """Why a collective failed, as far as it can be told."""

    CONFIGURATION = "configuration"
    """Another group would fail alike: devices, types, versions, or this process's own fault."""
    LOST_MEMBER = "lost member"
    """A member, or the way to it, is gone."""
    UNKNOWN = "unknown"


CONFIGURATION_TYPES: Final = frozenset({"OutOfMemoryError", "NotImplementedError"})
LOST_MEMBER_TYPES: Final = frozenset({"DistNetworkError", "DistStoreError", "ConnectionError"})

CONFIGURATION_TEXTS: Final = (
    # NCCL
    "duplicate gpu detected",
    "ncclinvalidusage",
    "ncclinvalidargument",
    "mismatched collective",
    "nccl version mismatch",
    "nccl hangs",  # it does not let go of a group: see nccl_sums
    "no space left on device",  # of /dev/shm, through which NCCL speaks within a machine
    # PyTorch's process groups
    "invalid scalar type",
    "unsupported data type",
    "unconvertible nccl type",
    "tensors must be cuda and dense",
    "tensors must be dense",
    "not supported on this backend",
    "no gpus found",
    # CUDA: the process cannot use its device, or not any more
    "out of memory",
    "invalid device ordinal",
    "no cuda-capable device",
    "cuda driver version is insufficient",
    "no kernel image is available",
    "device-side assert",
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "uncorrectable ecc error",
    # gloo
    "unsupported gloo device",
    "to a (local) address",
)
LOST_MEMBER_TEXTS: Final = (
    # NCCL
    "ncclremoteerror",
    "remote process exited",
    "closed by remote peer",
    "communicator was aborted",
    "comm abort",
    "watchdog caught collective operation timeout",
    # gloo, and the stores
    "closed by peer",
    "connection closed",
    "connection refused",
    "connection reset",
    "connection was likely closed",
    "broken pipe",
    "no route to host",
    "application timeout caused pair closure",
    "timed out",
    "timeout",
)


def classify(types: Iterable[str], text: str) -> Cause:
    """The cause of an error.

    Args:
        types: names of the error's type and of those that it is derived from.
        text: what it says. What is configured wrongly counts more than what follows from it: where
            one member ends because of it, the others see that member go.
    """
    names, said = frozenset(types), text.lower()
    if names & CONFIGURATION_TYPES or any(part in said for part in CONFIGURATION_TEXTS):
        return Cause.CONFIGURATION
    if names & LOST_MEMBER_TYPES or any(part in said for part in LOST_MEMBER_TEXTS):
        return Cause.LOST_MEMBER
    return Cause.UNKNOWN


def cause_of(error: BaseException) -> Cause:
    """The cause of an error that was raised."""
    return classify((kind.__name__ for kind in type(error).__mro__), str(error))


def first_words(text: str) -> str:
    """What happened, in one line, without source lines before it and advice behind it."""
    said, _, last = text.partition("Last error:")
    lines = [line.strip() for line in last.splitlines() if line.strip()]
    if lines:
        words = lines[0]
    else:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        words = _without_source(lines[0]) if lines else ""
    return words[:MAX_WORDS]


def _without_source(line: str) -> str:
    """A line of gloo without ``[FILE:LINE]`` before it, and without what it advises."""
    words = line.rpartition("] ")[2] if line.startswith("[") else line
    return words.partition(". ")[0]
