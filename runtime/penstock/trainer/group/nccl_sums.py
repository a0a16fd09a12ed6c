"""Sums by NCCL that the host waits for, so that a member's death in one is noticed and survived.

Left to itself PyTorch queues such a sum and goes on: ``work.wait()`` holds up the device's stream
and not the program, so a step would be counted before its sum is known to be whole; and when a
member dies in it, PyTorch's watchdog ends the process after the time-out
(``TORCH_NCCL_ASYNC_ERROR_HANDLING`` is 3 unless it is set), so no survivor could go on. Here the
process group is made with ``TORCH_NCCL_ASYNC_ERROR_HANDLING=0`` and ``TORCH_NCCL_BLOCKING_WAIT=1``:
its watchdog then ends nothing, and ``work.wait()`` raises what went wrong. The host looks whether
the sums are done until they are, until the trainer has ended the group, or until the time is over,
and aborts the communicator in the latter two cases, which also ends the kernels that wait for ever.

Source: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html and the PyTorch
issues 155916 and 102599.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import torch

from penstock.trainer.group.step_barrier import GroupBrokenError, GroupEndedError

logger = logging.getLogger(__name__)

ENVIRONMENT: Final = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "1"}
"""What a process group reads when it is made, and is needed for no longer."""

FIRST_PAUSE_SECONDS: Final = 20e-6
MAX_PAUSE_SECONDS: Final = 1e-3
PAUSE_SHARE: Final = 0.05
"""A pause is this part of the time waited so far: a sum is noticed at most so much too late."""
ABORT_SECONDS: Final = 30.0
"""What NCCL gets to let go of a communicator; in some of its versions that hangs."""


class Action(StrEnum):
    """What to do about sums that were begun."""

    LOOK_AGAIN = "look again"
    COLLECT = "collect"
    """They are done or have failed: ``work.wait()`` says which."""
    GIVE_UP_ENDED = "the trainer ended this group"
    GIVE_UP_LATE = "out of time"


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of sums that were begun."""

    completed: bool
    """Whether PyTorch says of all of them that they are done, or have failed."""
    interrupted: bool
    """Whether the trainer has ended the group."""
    seconds: float
    """Since they were begun."""


def judge(look: Look, limit_seconds: float) -> Action:
    """What to do: a sum that is done is done, whatever else happened meanwhile."""
    if look.completed:
        return Action.COLLECT
    if look.interrupted:
        return Action.GIVE_UP_ENDED
    return Action.GIVE_UP_LATE if look.seconds >= limit_seconds else Action.LOOK_AGAIN


def pause_seconds(seconds: float) -> float:
    """How long to pause before the next look, so long after the sums were begun."""
    return min(max(FIRST_PAUSE_SECONDS, PAUSE_SHARE * seconds), MAX_PAUSE_SECONDS)


class Work(Protocol):
    """A sum that was begun, as PyTorch has it."""

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""

    def wait(self) -> Any:
        """Have the device's stream wait for it. Raises RuntimeError: it has failed."""


class SumGroup(Protocol):
    """``torch.distributed.ProcessGroupNCCL``, or what stands in for it in tests."""

    def allreduce(self, tensors: list[torch.Tensor], /) -> Work:
        """Begin to add a tensor up over the members, in place."""

    def abort(self) -> None:
        """Let go of the communicator: kernels that wait for other members end."""


@contextmanager
def environment(values: Mapping[str, str] = ENVIRONMENT) -> Iterator[None]:
    """Environment variables for as long as a process group is being made."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class NcclSums:
    """The sums of one group by NCCL; see the module's docstring."""

    def __init__(
        self,
        group: SumGroup,
        limit_seconds: float,
        *,
        abort_seconds: float = ABORT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``limit_seconds``: how long a sum may take that all members have entered."""
        self._group = group
        self._limit_seconds = limit_seconds
        self._abort_seconds = abort_seconds
        self._clock = clock
        self._sleep = sleep
        self._aborted = False

    def sum(self, tensors: Iterable[torch.Tensor], interrupted: Callable[[], bool]) -> None:
        """Add each tensor up over the members, in place; returns when that is done.

        Raises:
            GroupBrokenError: it was not done in time, or the trainer has ended the group.
            RuntimeError: NCCL says what went wrong.
        """
        works = [self._group.allreduce([tensor]) for tensor in tensors]
        began = self._clock()
        while True:
            completed = all(work.is_completed() for work in works)
            seconds = self._clock() - began
            action = judge(Look(completed, interrupted(), seconds), self._limit_seconds)
            if action is Action.COLLECT:
                for work in works:
                    work.wait()
                return
            if action is not Action.LOOK_AGAIN:
                self.close()
                if action is Action.GIVE_UP_ENDED:
                    raise GroupEndedError(f"{action} (in a sum)")
                raise GroupBrokenError(
                    f"a member was lost in a sum: not done after {seconds:.0f} s"
                )
            self._sleep(pause_seconds(seconds))

    def close(self) -> None:
        """Let go of the communicator, once. Raises RuntimeError: NCCL does not."""
        if self._aborted:
            return
        self._aborted = True
        thread = threading.Thread(target=self._group.abort, name="penstock-abort", daemon=True)
        thread.start()
        thread.join(self._abort_seconds)
        if thread.is_alive():
            raise RuntimeError(f"NCCL hangs: no abort within {self._abort_seconds:.0f} s")
