"""A session's place in the group: joining, agreeing on steps, taking over a model, leaving.

One `Membership` lives as long as the session; groups come and go within it. Whatever goes wrong
with a group is `GroupBrokenError`; the session then joins the next one, which the trainer forms
from those who are left.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.job.protocol import Directive, Group, MemberId, Phase
from penstock.trainer.group.collective import Gradients
from penstock.trainer.group.group_channels import (
    Call,
    Crew,
    GroupChannels,
    ModelHolder,
    RestoreError,
    SessionError,
)
from penstock.trainer.group.group_orders import GroupOrders
from penstock.trainer.group.regrouping import Regrouping
from penstock.trainer.group.step_barrier import GroupBrokenError, GroupEndedError, Listener
from penstock.trainer.group.trainer_connection import Orders, TrainerConnection
from penstock.trainer.nodecheck.between_steps import StepCheck

logger = logging.getLogger(__name__)

LOG_WAITING_SECONDS: Final = 10.0
LOG_PAUSE_SECONDS: Final = 1.0
NO_LOSSES: Final[Mapping[int, float]] = {}


@dataclass(frozen=True)
class Verdict:
    """What all members do alike with a step."""

    consumed: list[tuple[int, bytes]]  # slot within the step, its samples as int64
    regroup: bool
    losses: Mapping[int, float]  # of this member, by slot, each weighed
    said: Sequence[Any] = ()  # by each member beside that


class Membership:
    """The membership of one session; see the module's docstring."""

    def __init__(
        self,
        link: TrainerConnection,
        listener: Listener,
        member: MemberId,
        host: str,
        token: str,
        crew: Crew | None = None,
    ) -> None:
        """``crew``: the processes of this member, where it is a replica group."""
        self._link = link
        self._member = member
        self._channels = GroupChannels(listener, host, token, crew)
        self._group: Group | None = None
        self._orders: GroupOrders | None = None  # as long as there is a group
        self._number = 0
        self._index = 0
        self._lost: tuple[MemberId, ...] = ()
        self._shares: tuple[int, ...] = ()
        self._regrouping = Regrouping()
        self._check = StepCheck.of_process()
        self._step = 0  # that was agreed on last
        self._dice = random.Random()  # noqa: S311  (spreads workers, keeps no secret)
        self.slots_per_step = 1
        """Micro-batches of a step, as the trainer says; known once in a group."""

    # ------------------------------------------------------------------ what the session sees

    @property
    def inside(self) -> bool:
        """Whether it is in a group."""
        return self._group is not None

    @property
    def size(self) -> int:
        """Members of the group; 0 outside any."""
        return len(self._group.members) if self._group else 0

    @property
    def index(self) -> int:
        """Rank within the group."""
        return self._index

    @property
    def place(self) -> tuple[int, int] | None:
        """The group's number, which no other has, and the rank within it; None: outside any."""
        return (self._number, self._index) if self._group is not None else None

    @property
    def skipped(self) -> tuple[tuple[int, int], ...]:
        """The slots in quarantine, counted over all epochs: ``start..stop`` of each range."""
        return self._group.skipped if self._group else ()

    @property
    def slots(self) -> range:
        """The slots of the next step that are this member's."""
        start = sum(self._shares[: self._index])
        return range(start, start + self._shares[self._index])

    def interrupted(self) -> bool:
        """Whether the trainer has ended the group that we are in."""
        return self._orders is not None and self._orders.watch()

    # ------------------------------------------------------------------ joining and leaving

    def join(
        self,
        holder: ModelHolder,
        committed: Callable[[], int | None],
        gradients: Gradients,
        draining: Callable[[], bool],
    ) -> bool:
        """Wait for a group and form it with the others; the model is then the group's.

        False when there is none to join: the data are consumed, or this process is draining.

        Raises:
            SessionError: the members do not train the same model, cannot sum as they are, or broke
                up again and again without a step in between.
            LinkError: the trainer refuses this process or is away for too long.
        """
        began = logged = time.monotonic()
        self._pause(draining)
        self._announce(committed())
        while not draining():
            orders = self._link.wait(self._is_call, timeout=0.5)
            if orders is None:
                if time.monotonic() - logged > LOG_WAITING_SECONDS:
                    logged = time.monotonic()
                    newest = self._link.orders
                    why = newest.reply.message if newest else "the trainer has not answered"
                    logger.info("waiting for a group for %.0f s: %s", logged - began, why)
                continue
            if orders.reply.directive is Directive.FINISH:
                return False
            group = orders.reply.group
            assert group is not None
            self._number = group.number
            try:
                self._form(group, orders, holder, committed(), gradients)
            except GroupBrokenError as error:
                logger.warning("group %d was not formed: %s", group.number, error)
                if isinstance(error, RestoreError):
                    self._link.note(checkpoint=error.newest)
                self.leave(error)
                self._pause(draining)
                self._announce(committed())
                continue
            self._link.publish(
                phase=Phase.TRAINING,
                generation=group.number,
                group=group,
                committed=group.start_step,
                lost=(),
            )
            logger.info(
                "in group %d as %d of %d from step %d, %.1f s after asking",
                group.number,
                self._index,
                self.size,
                group.start_step,
                time.monotonic() - began,
            )
            return True
        return False

    def leave(self, broken: GroupBrokenError | None = None) -> None:
        """Let go of the group, whatever its state; ``broken`` says why, if it broke."""
        if broken is not None and self._group is not None:
            self._lost = tuple(self._group.members[index].id for index in broken.lost)
        if broken is not None and not isinstance(broken, GroupEndedError):
            self._regrouping = self._regrouping.broken(str(broken))
        self._channels.close()
        if self._check is not None:
            self._check.reset()
        self._group = self._orders = None
        self._index = 0

    def _pause(self, draining: Callable[[], bool]) -> None:
        """Wait before the next group where groups break again and again."""
        if self._regrouping.exhausted:
            raise SessionError(self._regrouping.resignation())
        seconds = self._regrouping.pause_seconds(self._dice.random())
        if seconds > LOG_PAUSE_SECONDS:
            breaks = self._regrouping.breaks
            logger.warning("%d groups broke in a row: the next in %.1f s", breaks, seconds)
        deadline = time.monotonic() + seconds
        while not draining() and (left := deadline - time.monotonic()) > 0:
            self._link.wait(lambda _: False, timeout=min(left, 0.5))

    def _announce(self, committed: int | None) -> None:
        self._link.publish(
            phase=Phase.READY, generation=self._number, committed=committed, lost=self._lost
        )
        self._lost = ()

    def _is_call(self, orders: Orders) -> bool:
        if orders.report.phase is not Phase.READY or orders.report.generation != self._number:
            return False
        if orders.reply.directive is Directive.FINISH:
            return True
        group = orders.reply.group
        called = orders.reply.directive is Directive.JOIN and group is not None
        return called and group is not None and group.number > self._number

    def _form(
        self,
        group: Group,
        orders: Orders,
        holder: ModelHolder,
        committed: int | None,
        gradients: Gradients,
    ) -> None:
        index = group.index_of(self._member)
        assert index is not None
        known = GroupOrders(self._link, group, orders)
        self._group, self._index, self._shares, self._orders = group, index, group.shares, known
        self.slots_per_step = orders.reply.slots_per_step
        call = Call(group, index, committed, orders.reply.lease_seconds)
        self._channels.form(call, holder, gradients, lambda: known.called_off)

    # ------------------------------------------------------------------ steps

    def agree(
        self,
        step: int,
        slots: list[int],
        consumed: list[tuple[int, bytes]],
        *,
        leave: bool,
        losses: Mapping[int, float] = NO_LOSSES,
        says: Any = None,
    ) -> Verdict:
        """Wait until all members have computed their part of a step; all get the same verdict.

        ``slots`` are all that hold samples of this step, ``consumed`` those that were ours, and
        ``losses`` theirs. What each member ``says`` beside that all hear.

        Raises:
            GroupBrokenError: a member is gone, the trainer ended the group, or the members did not
                compute every slot of the step once.
        """
        orders = self._orders
        if orders is None or orders.watch():
            raise GroupEndedError("the trainer ended this group")
        check = self._check
        own = {"step": step, "consumed": consumed, "leave": leave or orders.called_away}
        if check is not None:
            own["check"] = check.says()
        if says is not None:
            own["says"] = says

        def decide(arrived: list[dict[str, Any]]) -> dict[str, Any]:
            consumed = _consumed_by_all(step, slots, arrived)
            orders.await_lease(step)
            regroup = any(message["leave"] for message in arrived)
            decided = {
                "consumed": consumed,
                "regroup": regroup,
                "shares": orders.newest_shares(self._shares),
            }
            if check is not None:
                said = [message.get("check") for message in arrived]
                decided["check"] = check.decide(said, calm=not regroup)
            if any("says" in message for message in arrived):
                decided["said"] = [message.get("says") for message in arrived]
            return decided

        verdict = self._channels.exchange(own, decide, self.interrupted)
        self._shares, self._step = tuple(verdict["shares"]), step
        if check is not None:
            check.hear(verdict.get("check"))
        return Verdict(
            [(slot, ids) for slot, ids in verdict["consumed"]],
            verdict["regroup"],
            losses,
            verdict.get("said", ()),
        )

    def sum_gradients(self, gradients: Gradients, weight: float) -> None:
        """Add the gradients up over the members.

        Raises:
            GroupBrokenError: a member is gone.
            SessionError: the members cannot sum as they are configured.
        """
        self._channels.sum_gradients(gradients, weight, self.interrupted)

    def note_committed(self) -> None:
        """A step has been committed: groups that broke before it count no more.

        Machines are measured now, where the job asks for it and it is time.
        """
        self._regrouping = self._regrouping.committed()
        if self._check is not None and self._group is not None:
            self._check.carry_out(self._group, self._index, self._step)


def _consumed_by_all(
    step: int, slots: list[int], arrived: list[dict[str, Any]]
) -> list[tuple[int, bytes]]:
    if any(message["step"] != step for message in arrived):
        raise GroupBrokenError(f"members are at steps {[m['step'] for m in arrived]}")
    consumed = [part for message in arrived for part in message["consumed"]]
    computed = sorted(slot for slot, _ in consumed)
    if computed != slots:
        raise GroupBrokenError(f"step {step} has slots {slots}, computed were {computed}")
    return consumed
