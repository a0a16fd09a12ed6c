"""What an agent does with the processes that it launches: one step for everything that happens.

Pure: events in, orders out, the time as an argument. The trainer's rendezvous says who is in a
world (`penstock.trainer.control.model.rendezvous`); this is the part of one member.

- A world begins when the trainer calls, with as many processes as were asked for, all new.
- When it says that the world ends, they are asked to end, and killed after a while; then this
  member is ready for the next one.
- When a process fails, the others of this pod are ended at once. Whether that was a peer's end, so
  that all go on in another world, or this pod's own failure, says the trainer; without its word it
  is the pod's own after `VERDICT_SECONDS`. Alone, without a trainer, it is so at once.
- When all have ended with 0, this member has finished.
- Processes that hang are killed, and this member is ready for the next world.
- A pod that is drained has not failed, whatever its processes make of being ended.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from penstock.base.exit_codes import SIGNALLED
from penstock.job.protocol import Phase

BROKEN_SECONDS: Final = 5.0
"""So long processes of a world that has lost a member may take to end: they wait for it in vain."""
LEAVE_SECONDS: Final = 30.0
"""The same of a whole world, where ``grace_seconds`` is longer."""
VERDICT_SECONDS: Final = 30.0
"""How long the trainer is waited for, when it is away, before a failure is this pod's own."""
UNFOUNDED: Final = 1
"""Exit code where no trainer can say what world there is."""


class Stage(StrEnum):
    """What a launcher is at."""

    WAITING = "waiting"  # for a world
    RUNNING = "running"
    LEAVING = "leaving"  # the world ends: its processes are ending
    FAILED = "failed"  # a process failed: the others are ending, and the trainer is asked
    ENDING = "ending"  # the agent was told to end: by a drain, Ctrl-C, or for good
    FINISHED = "finished"  # every process ended with 0


_PHASES: Final = {
    Stage.WAITING: Phase.READY,
    Stage.RUNNING: Phase.TRAINING,
    Stage.LEAVING: Phase.TRAINING,
    Stage.FAILED: Phase.FAILED,
    Stage.ENDING: Phase.LEAVING,
    Stage.FINISHED: Phase.FINISHED,
}

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Called:
    """The trainer has formed a world with this member."""

    world: int


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The world ends; ``whole``: nobody has been lost in it so far."""

    whole: bool


@dataclass(frozen=True, slots=True)
class Blamed:
    """The processes failed by themselves."""


@dataclass(frozen=True, slots=True)
class Released:
    """Everything has been trained: there will be no further world."""


@dataclass(frozen=True, slots=True)
class Deserted:
    """The trainer does not serve this member, and never will."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process has ended; ``code`` as a shell has it."""

    local_rank: int
    code: int


@dataclass(frozen=True, slots=True)
class Unstartable:
    """The processes cannot be started, those that were have been ended."""

    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """The agent was told to end its program."""

    number: signal.Signals


@dataclass(frozen=True, slots=True)
class Restarted:
    """The processes hang: the world ends, and this member is to be in the next one."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


Event = (
    Called
    | Dismissed
    | Blamed
    | Released
    | Deserted
    | Ended
    | Unstartable
    | Signalled
    | Restarted
    | Ticked
)

# ------------------------------------------------------------------ orders


@dataclass(frozen=True, slots=True)
class Start:
    """Start the processes of this world."""

    world: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a signal to every process that runs."""

    number: signal.Signals


Order = Start | Send

# ------------------------------------------------------------------ state


@dataclass(frozen=True)
class Launcher:
    """One member's processes.

    Attributes:
        processes: to be started for each world.
        grace_seconds: that SIGTERM leaves them.
        alone: without a trainer.
        world: the newest one; 0: there was none.
        running: local ranks of processes that live.
        failure: local rank and exit code of the first that failed in this world.
        own: whether that was this pod's own failure; None: nobody knows yet.
        kill_at: when those that still run are killed.
        decide_at: when a failure of which nobody knows is this pod's own.
        ended_by: the signal by which the agent is to end.
        exit_code: the agent's, once there is nothing left to do.
    """

    processes: int
    grace_seconds: float
    alone: bool = False
    stage: Stage = Stage.WAITING
    world: int = 0
    running: frozenset[int] = frozenset()
    failure: tuple[int, int] | None = None
    own: bool | None = None
    kill_at: float | None = None
    decide_at: float | None = None
    ended_by: signal.Signals | None = None
    worst: int = 0  # exit code of those that ended since
    exit_code: int | None = None

    @property
    def phase(self) -> Phase:
        """What the trainer is told."""
        return _PHASES[self.stage]


Result = tuple[Launcher, list[Order]]


def step(state: Launcher, event: Event, now: float) -> Result:
    """Take in an event; the new state, and what is to be done, in order.

    ``now`` is in seconds of any clock that does not go back. A state with an exit code stays.
    """
    if state.exit_code is not None:
        return state, []
    match event:
        case Called(world):
            return _begin(state, world)
        case Dismissed(whole):
            return _leave(state, whole, now)
        case Blamed():
            return _judge(state, own=True), []
        case Released():
            released = state.stage is Stage.WAITING
            return (replace(state, stage=Stage.FINISHED, exit_code=0) if released else state), []
        case Deserted():
            return _desert(state), []
        case Ended(local_rank, code):
            return _end_one(state, local_rank, code, now)
        case Unstartable(code):
            return replace(state, running=frozenset(), exit_code=code), []
        case Signalled(number):
            return _end_all(state, number)
        case Restarted():
            return _restart(state)
        case Ticked():
            return _pass_time(state, now)


def _begin(state: Launcher, world: int) -> Result:
    if state.stage is not Stage.WAITING or world <= state.world:
        return state, []
    begun = replace(
        state,
        stage=Stage.RUNNING,
        world=world,
        running=frozenset(range(state.processes)),
        failure=None,
        own=None,
        kill_at=None,
        decide_at=None,
    )
    return begun, [Start(world)]


def _leave(state: Launcher, whole: bool, now: float) -> Result:
    if state.stage is Stage.FAILED:
        return _judge(state, own=False), []
    if state.stage is not Stage.RUNNING:
        return state, []
    seconds = min(state.grace_seconds, LEAVE_SECONDS if whole else BROKEN_SECONDS)
    return replace(state, stage=Stage.LEAVING, kill_at=now + seconds), [Send(signal.SIGTERM)]


def _judge(state: Launcher, *, own: bool) -> Launcher:
    """Whose failure it was. The first word stands: a world that has ended is no longer asked of."""
    if state.stage is not Stage.FAILED or state.own is not None:
        return state
    return _settle(replace(state, own=own))


def _settle(state: Launcher) -> Launcher:
    """What follows once every process has ended."""
    if state.running:
        return state
    match state.stage:
        case Stage.RUNNING:
            return replace(state, stage=Stage.FINISHED, exit_code=0)
        case Stage.LEAVING:
            return _await_world(state)
        case Stage.FAILED if state.own is False:
            return _await_world(state)
        case Stage.FAILED if state.own and state.failure is not None:
            return replace(state, exit_code=state.failure[1])
        case Stage.ENDING:
            return replace(state, exit_code=_code_at_end(state))
    return state


def _await_world(state: Launcher) -> Launcher:
    if state.alone:  # the trainer has gone for good meanwhile
        return replace(state, exit_code=UNFOUNDED)
    return replace(state, stage=Stage.WAITING, kill_at=None, decide_at=None)


def _code_at_end(state: Launcher) -> int:
    ended_by = state.ended_by
    if ended_by is signal.SIGINT or state.worst == 0:
        return state.worst
    return SIGNALLED + (ended_by or signal.SIGTERM)


def _desert(state: Launcher) -> Launcher:
    """A world that runs goes on; it is the last one."""
    deserted = replace(state, alone=True)
    if state.stage is Stage.WAITING:
        return replace(deserted, exit_code=UNFOUNDED)
    return _judge(deserted, own=True)


def _end_one(state: Launcher, local_rank: int, code: int, now: float) -> Result:
    if local_rank not in state.running:
        return state, []
    left = replace(state, running=state.running - {local_rank}, worst=state.worst or code)
    if state.stage is not Stage.RUNNING or code == 0:
        return _settle(left), []
    failed = replace(
        left,
        stage=Stage.FAILED,
        failure=(local_rank, code),
        own=True if state.alone else None,
        kill_at=now + min(state.grace_seconds, BROKEN_SECONDS),
        decide_at=now + VERDICT_SECONDS,
    )
    return _settle(failed), [Send(signal.SIGTERM)] if failed.running else []


def _end_all(state: Launcher, number: signal.Signals) -> Result:
    if number is signal.SIGKILL or state.stage is not Stage.ENDING:
        ended_by = number
    else:
        ended_by = state.ended_by or number
    begun = state.stage is Stage.ENDING
    worst = state.worst if begun else (0 if state.running else SIGNALLED + number)
    ending = replace(
        state,
        stage=Stage.ENDING,
        ended_by=ended_by,
        worst=worst,
        kill_at=None,
        decide_at=None,
    )
    return _settle(ending), [Send(number)] if state.running else []


def _restart(state: Launcher) -> Result:
    """Processes that hang do not hear SIGTERM. Alone, there would be no other world."""
    if state.alone or not state.running or state.stage not in (Stage.RUNNING, Stage.LEAVING):
        return state, []
    return replace(state, stage=Stage.LEAVING, kill_at=None), [Send(signal.SIGKILL)]


def _pass_time(state: Launcher, now: float) -> Result:
    orders: list[Order] = []
    if state.kill_at is not None and now >= state.kill_at and state.running:
        state = replace(state, kill_at=None)
        orders.append(Send(signal.SIGKILL))
    if state.decide_at is not None and now >= state.decide_at:
        state = _judge(state, own=True)
    return state, orders
