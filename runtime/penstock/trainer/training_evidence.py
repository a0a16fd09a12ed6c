"""What a training process lets its pod's agent know: that it trains, and as which rank of how many.

Workers that never form a group train copies of one model, each on all data, and each believes that
it is rank 0 of 1. Only the processes themselves can tell: ``penstock run`` names a socket in their
environment, and the hook that it puts on PYTHONPATH (see `penstock.data.interception`) calls
`install` once the program has imported PyTorch. From then on a statement goes out when the process
computes gradients or takes an optimizer's step, at most once a second, and when it joins a process
group. A process that loads a model for ten minutes says nothing, and neither do the processes of a
DataLoader. What divides the work by itself (a session, leased shards) says so with `announce`.

A process of a group says as well how many optimizer steps it has taken, and in what time: of a
plain loop that is all that is known of its speed (`penstock.trainer.brain.launched_speed`). And
whether anything was saved with `torch.save`, or the state of an optimizer was ever asked for or
taken up: that is a program with checkpoints.

A statement is one datagram that is sent or dropped: nothing here waits, raises into the program, or
does anything outside ``penstock run``. Within `torch.compile` the hooks are not there at all.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import time
import weakref
from typing import Any, Final

from penstock.job.work_source import Part
from penstock.trainer.gloo_threads import outlive_gloo_threads

SOCKET: Final = "PENSTOCK_AGENT_SOCKET"
"""Name of the agent's datagram socket, in Linux's abstract namespace."""
STATEMENT_SECONDS: Final = 1.0
"""A process that trains says so at most once in so long."""


def announce(part: Part) -> None:
    """Tell the agent, if there is one, how this process gets its work."""
    if name := os.environ.get(SOCKET):
        _send(name, {"part": part.value})


def install(torch: Any) -> None:
    """Let this process's agent know when it trains. ``torch`` has been imported."""
    name = os.environ.get(SOCKET)
    if not name:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    trains = _Throttle(torch, name)
    register_optimizer_step_post_hook(trains.step)
    torch.autograd.backward = _followed_by(torch.autograd.backward, trains)
    torch.save = _followed_by(torch.save, trains.note_saved)
    optimizer = torch.optim.Optimizer
    optimizer.state_dict = _followed_by(optimizer.state_dict, trains.note_saved)
    optimizer.load_state_dict = _followed_by(optimizer.load_state_dict, trains.note_saved)
    if torch.distributed.is_available():
        outlive_gloo_threads(torch.distributed)
        joined = functools.partial(_state, torch, name, trains=False)
        init = _followed_by(torch.distributed.init_process_group, joined)
        torch.distributed.init_process_group = init
        torch.distributed.distributed_c10d.init_process_group = init


class _Throttle:
    """Called after each step; states it once in `STATEMENT_SECONDS`.

    A program with several optimizers takes as many steps as the one that takes most.
    """

    def __init__(self, torch: Any, name: str) -> None:
        self._torch = torch
        self._name = name
        self._next = 0.0
        self._by_optimizer: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._most = 0
        self._first = self._newest = 0.0
        self._saves = False

    def note_saved(self) -> None:
        """A checkpoint was written or taken up; said with the next statement."""
        self._saves = True

    def __call__(self) -> None:
        """The program has computed gradients."""
        if not self._torch.compiler.is_compiling():
            self._state(time.monotonic())

    def step(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has taken a step."""
        if self._torch.compiler.is_compiling():
            return
        now = time.monotonic()
        steps = self._by_optimizer[optimizer] = self._by_optimizer.get(optimizer, 0) + 1
        if steps > self._most:
            self._most, self._newest = steps, now
            self._first = self._first or now
        self._state(now)

    def _state(self, now: float) -> None:
        if now >= self._next:
            self._next = now + STATEMENT_SECONDS
            steps = max(0, self._most - 1), self._newest - self._first
            _state(self._torch, self._name, trains=True, steps=steps, saves=self._saves)


def _followed_by(function: Any, after: Any) -> Any:
    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        after()
        return result

    return called


def _state(
    torch: Any,
    name: str,
    *,
    trains: bool,
    steps: tuple[int, float] = (0, 0.0),
    saves: bool = False,
) -> None:
    """``steps``: how many, and the seconds that they took."""
    rank, world = 0, 1
    statement: dict[str, Any] = {"trains": trains, "saves": saves}
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        try:
            rank, world = distributed.get_rank(), distributed.get_world_size()
        except (RuntimeError, ValueError):  # another thread is leaving the group
            return
        statement |= {"steps": steps[0], "step_seconds": steps[1]}
    _send(name, {**statement, "rank": rank, "world_size": world})


def _send(name: str, statement: dict[str, Any]) -> None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(json.dumps(statement).encode(), f"\0{name}")
    except OSError:  # the agent is gone, or has more to read than it will
        return
