"""Processes that are ranks of one world: started, ended and started anew as pods come and go.

The shell of `penstock.trainer.launch.launcher`: what happens becomes one event after the other, and
orders are carried out before the next. With a trainer, this member reports to it as a session does,
over the same line; without one, the world is this pod's processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from penstock.base.listener import address_of, reserve_port
from penstock.job.identities import PodIdentity
from penstock.job.protocol import (
    Directive,
    Group,
    GroupMember,
    MemberId,
    Phase,
    Restore,
    SessionReport,
)
from penstock.trainer.group.trainer_connection import (
    Orders,
    SupersededError,
    TrainerConnection,
    TrainerConnectionError,
)
from penstock.trainer.launch.launcher import (
    Blamed,
    Called,
    Deserted,
    Dismissed,
    Ended,
    Event,
    Launcher,
    Released,
    Restarted,
    Send,
    Signalled,
    Stage,
    Start,
    Ticked,
    Unstartable,
    step,
)
from penstock.trainer.launch.program import say_unstartable
from penstock.trainer.launch.rank_processes import RankProcesses
from penstock.trainer.launch.world import World

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
FLUSH_SECONDS: Final = 5.0
"""How long the trainer is tried to be told that this member has finished."""


class LaunchedProgram:
    """One command, run by several processes; see the module's docstring."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        processes: int,
        identity: PodIdentity,
        trainer: str | None,
        grace_seconds: float,
        idle_seconds: Callable[[], float | None] = lambda: None,
        replica_pods: int = 1,
    ) -> None:
        """Nothing is started yet.

        Args:
            command: that each process runs.
            environ: of all of them; what their ranks are comes on top.
            processes: in this pod.
            identity: of this pod.
            trainer: HOST:PORT; None: there is none.
            grace_seconds: that SIGTERM leaves the processes.
            idle_seconds: since the last step of any of them; None where none is known.
            replica_pods: of the replica group that they are with those of others; 1: of none.
        """
        self._command = command
        self._identity = identity
        self._trainer = trainer
        self._idle_seconds = idle_seconds
        self._replica_pods = replica_pods
        self._launcher = Launcher(processes, grace_seconds, alone=trainer is None)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()  # None: look for orders
        self._processes = RankProcesses(command, environ, self._note_end)
        self._reserved = reserve_port(identity.ip)
        self._run_id = identity.uid or (identity.job if trainer else secrets.token_hex(4))
        self._member = MemberId(
            rank=identity.rank, incarnation=identity.incarnation, nonce=secrets.token_hex(8)
        )
        self._group: Group | None = None
        self._line: TrainerConnection | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def ranks(self) -> int:
        """See `Program.ranks`."""
        return self._launcher.processes

    @property
    def pids(self) -> Collection[int]:
        """See `Program.pids`."""
        return self._processes.pids

    async def begun(self) -> None:
        """See `Program.begun`: that it waits for a world is reported, too."""

    def pass_on(self, number: signal.Signals) -> None:
        """See `Program.pass_on`."""
        self._events.put_nowait(Signalled(number))

    def restart(self) -> bool:
        """See `Program.restart`: the trainer forms another world."""
        if self._line is None or self._launcher.stage not in (Stage.RUNNING, Stage.LEAVING):
            return False
        self._events.put_nowait(Restarted())
        return True

    async def run(self) -> int:
        """See `Program.run`."""
        if self._trainer is None:
            address = address_of(self._reserved, self._identity.ip)
            self._group = _group_of_one(self._member, address, self._launcher.processes)
            self._events.put_nowait(Called(self._group.number))
        else:
            self._line = TrainerConnection(
                self._trainer, self._identity.token, self._report(), notify=self._notify
            )
            self._line.start()
        try:
            while self._launcher.exit_code is None:
                await self._take(await self._next())
            await self._say_end()
            return self._launcher.exit_code
        finally:
            await self._close()

    # ------------------------------------------------------------------ events

    async def _next(self) -> Event:
        """What happens next; the trainer's orders are such, where they answer what is now."""
        try:
            async with asyncio.timeout(TICK_SECONDS):
                event = await self._events.get()
        except TimeoutError:
            return Ticked()
        return event if event is not None else self._heed()

    def _heed(self) -> Event:
        """The newest orders."""
        if self._line is None:
            return Ticked()
        try:
            orders = self._line.orders
        except SupersededError as error:
            logger.warning("%s: ending", error)
            return self._give_up(Signalled(signal.SIGTERM))
        except TrainerConnectionError as error:
            logger.error("%s", error)
            return self._give_up(Deserted())
        launcher = self._launcher
        now = launcher.phase, launcher.world
        if orders is None or (orders.report.phase, orders.report.generation) != now:
            return Ticked()
        event = _event_of(orders, launcher.world)
        if isinstance(event, Called):
            self._group = orders.reply.group
        return event

    def _give_up(self, event: Event) -> Event:
        """Nothing more comes over the line."""
        if self._line is not None:
            self._line.close()
            self._line = None
        return event

    def _notify(self) -> None:
        """On the line's thread: there is news."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._events.put_nowait, None)

    def _note_end(self, local_rank: int, code: int) -> None:
        self._events.put_nowait(Ended(local_rank, code))

    # ------------------------------------------------------------------ orders

    async def _take(self, event: Event) -> None:
        before = self._launcher
        self._launcher, orders = step(before, event, time.monotonic())
        self._say(before)
        for order in orders:
            match order:
                case Send(number):
                    self._processes.send(number)
                case Start():
                    await self._start()
        self._publish(before)

    async def _start(self) -> None:
        assert self._group is not None
        world = World.of(self._group, self._member, self._run_id)
        logger.info("%s; rank 0 at %s", world, self._group.members[0].address)
        try:
            await self._processes.start(world)
        except OSError as error:
            self._events.put_nowait(Unstartable(say_unstartable(self._command, error)))

    def _say(self, before: Launcher) -> None:
        """Name the rank that failed first, and what follows from it."""
        now, group = self._launcher, self._group
        if now.failure is not None and now.failure != before.failure and group is not None:
            local_rank, code = now.failure
            rank = World.of(group, self._member, self._run_id).ranks[local_rank]
            why = self._processes.error_of(local_rank)
            logger.error(
                "rank %d (local rank %d) failed with exit code %d%s",
                rank,
                local_rank,
                code,
                f": {why}" if why else "",
            )
        if now.stage is Stage.WAITING and before.stage in (Stage.LEAVING, Stage.FAILED):
            logger.info("world %d has ended: waiting for the next one", now.world)

    # ------------------------------------------------------------------ the trainer

    def _publish(self, before: Launcher) -> None:
        """Let the trainer know what this member is at."""
        if self._line is None:
            return
        now = self._launcher
        if (now.phase, now.world) == (before.phase, before.world):
            self._line.note(idle_seconds=self._idle())
            return
        if now.phase is Phase.READY:
            self._group = None
            self._reserved.close()
            self._reserved = reserve_port(self._identity.ip)
        fresh = self._report()
        self._line.publish(**{name: getattr(fresh, name) for name in _CHANGING})

    def _report(self) -> SessionReport:
        return SessionReport(
            member=self._member,
            phase=self._launcher.phase,
            address=address_of(self._reserved, self._identity.ip),
            data=None,
            processes=self._launcher.processes,
            replica_pods=self._replica_pods,
            generation=self._launcher.world,
            group=self._group,
            idle_seconds=self._idle(),
        )

    def _idle(self) -> float | None:
        return self._idle_seconds() if self._launcher.stage is Stage.RUNNING else None

    async def _say_end(self) -> None:
        """See that the trainer knows how it ended, before the agent says that it did."""
        if self._line is not None and self._launcher.stage is Stage.FINISHED:
            await asyncio.to_thread(self._line.flush, FLUSH_SECONDS)

    async def _close(self) -> None:
        self._processes.send(signal.SIGKILL)
        self._processes.close()
        self._reserved.close()
        if self._line is not None:
            await asyncio.to_thread(self._line.close)


def _event_of(orders: Orders, world: int) -> Event:
    """What the trainer's orders are to a launcher whose newest world is this one."""
    match orders.reply.directive:
        case Directive.JOIN if orders.reply.group is not None:
            if orders.reply.group.number > world:
                return Called(orders.reply.group.number)
        case Directive.REGROUP:
            return Dismissed(whole=True)
        case Directive.ABANDON:
            return Dismissed(whole=False)
        case Directive.END:
            return Blamed()
        case Directive.FINISH:
            return Released()
    return Ticked()


def _group_of_one(member: MemberId, address: str, processes: int) -> Group:
    return Group(
        number=1,
        members=(GroupMember(id=member, address=address, processes=processes),),
        source=0,
        start_step=0,
        restore=Restore.FRESH,
        shares=(),
    )


_CHANGING: Final = ("phase", "address", "generation", "group", "idle_seconds")
"""Fields of a report that differ from one to the next."""
