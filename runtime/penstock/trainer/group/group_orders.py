"""What the trainer's newest answer means to a member of a group: go on or leave, and how far."""

from __future__ import annotations

import logging
import time

from penstock.job.protocol import Directive, Group, Phase
from penstock.trainer.group.step_barrier import GroupEndedError
from penstock.trainer.group.trainer_connection import Orders, TrainerConnection

logger = logging.getLogger(__name__)


class GroupOrders:
    """The orders for one group, as far as they are known."""

    def __init__(self, link: TrainerConnection, group: Group, call: Orders) -> None:
        """``call``: the answer that called into the group."""
        self._link = link
        self._number = group.number
        self._abandoned = False
        self._lease_stop = call.reply.lease_stop_step

    def watch(self) -> bool:
        """Look at the newest answer: whether the trainer has ended the group.

        Once ended, always ended: another trainer may take the group for whole again, but a step
        that was cut short because of it must not be committed.
        """
        orders = self._link.orders
        if orders is not None:
            answered = orders.report
            current = answered.phase is Phase.TRAINING and answered.generation == self._number
            if current and orders.reply.directive is Directive.ABANDON:
                self._abandoned = True
        return self._abandoned

    @property
    def called_off(self) -> bool:
        """Whether the group, which is not formed yet, is no more."""
        newest = self._link.orders
        return newest is not None and (
            newest.reply.group is None or newest.reply.group.number != self._number
        )

    @property
    def called_away(self) -> bool:
        """Whether all are to leave at the end of the step."""
        orders = self._link.orders
        return (
            orders is not None
            and orders.report.generation == self._number
            and orders.reply.directive is Directive.REGROUP
        )

    def newest_shares(self, present: tuple[int, ...]) -> tuple[int, ...]:
        """The shares of the next step; those of this one where the trainer's do not fit."""
        orders = self._current()
        shares = orders.reply.shares if orders else ()
        fits = len(shares) == len(present) and sum(shares) == sum(present)
        return shares if fits else present

    def await_lease(self, step: int) -> None:
        """The group may run ahead of the trainer only as far as its lease goes.

        Raises:
            GroupEndedError: the trainer ended the group.
        """
        since: float | None = None
        while True:
            if (orders := self._current()) is not None:
                self._lease_stop = max(self._lease_stop, orders.reply.lease_stop_step)
            if step < self._lease_stop:
                return
            if self.watch():
                raise GroupEndedError("the trainer ended this group")
            if since is None:
                since = time.monotonic()
                logger.info("step %d is beyond the lease: waiting for the trainer", step)
                self._link.publish(committed=step)
            self._link.wait(lambda _: False, timeout=0.05)

    def _current(self) -> Orders | None:
        orders = self._link.orders
        if orders is None or orders.reply.group is None:
            return None
        return orders if orders.reply.group.number == self._number else None
