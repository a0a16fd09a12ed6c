"""A session's place in the group: joining, agreeing on steps, taking over a model, leaving.

One `Membership` lives as long as the session; groups come and go within it. Whatever goes wrong
with a group is `GroupBrokenError`; the session then joins the next one, which the trainer forms
from those who are left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from penstock.job.protocol import Directive, Group, MemberId, Phase, Restore
from penstock.trainer.collective import Collective, Gradients, join_store, serve_store
from penstock.trainer.state_codec import PackedState, payload_bytes
from penstock.trainer.step_barrier import Channel, GroupBrokenError, Leader, Listener, connect
from penstock.trainer.trainer_connection import Orders, TrainerConnection

logger = logging.getLogger(__name__)

FORMING_TIMEOUT_SECONDS: Final = 15.0
ARRIVAL_TIMEOUT_SECONDS: Final = 24 * 3600.0  # the trainer ends a group long before
LOG_WAITING_SECONDS: Final = 10.0


class SessionError(Exception):
    """The training script and the job do not fit each other; says what to change."""


class ModelHolder(Protocol):
    """What holds the model: gives its state away and takes another one over."""

    def restore_checkpoint(self) -> None:
        """Load the newest checkpoint."""

    def export_state(self) -> PackedState:
        """The whole state, as of the last committed step."""

    def import_state(self, header: bytes, flat: torch.Tensor) -> None:
        """Take over the state of another member."""


@dataclass(frozen=True)
class Verdict:
    """What all members do alike with a step."""

    consumed: list[tuple[int, bytes]]  # slot within the step, its samples as int64
    regroup: bool


class Membership:
    """The membership of one session; see the module's docstring."""

    def __init__(
        self, link: TrainerConnection, listener: Listener, member: MemberId, host: str, token: str
    ) -> None:
        self._link = link
        self._listener = listener
        self._member = member
        self._host = host
        self._token = token
        self._group: Group | None = None
        self._number = 0
        self._index = 0
        self._leader: Leader | None = None
        self._channel: Channel | None = None
        self._collective: Collective | None = None
        self._abandoned = False
        self._lost: tuple[MemberId, ...] = ()
        self._lease_stop = 0
        self._shares: tuple[int, ...] = ()
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
    def skipped(self) -> tuple[tuple[int, int], ...]:
        """The slots in quarantine, counted over all epochs: ``start..stop`` of each range."""
        return self._group.skipped if self._group else ()

    @property
    def slots(self) -> range:
        """The slots of the next step that are this member's."""
        start = sum(self._shares[: self._index])
        return range(start, start + self._shares[self._index])

    def interrupted(self) -> bool:
        """Whether the trainer has ended the group that we are in.

        Once ended, always ended: another trainer may take the group for whole again, but a step
        that was cut short because of it must not be committed.
        """
        orders = self._link.orders
        if orders is None or self._group is None:
            return False
        answered = orders.report
        current = answered.phase is Phase.TRAINING and answered.generation == self._number
        if current and orders.reply.directive is Directive.ABANDON:
            self._abandoned = True
        return self._abandoned

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
            SessionError: the members do not train the same model.
            LinkError: the trainer refuses this process or is away for too long.
        """
        began = logged = time.monotonic()
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
                self.leave(error)
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
                group.number, self._index, self.size, group.start_step, time.monotonic() - began,
            )  # fmt: skip
            return True
        return False

    def leave(self, broken: GroupBrokenError | None = None) -> None:
        """Let go of the group, whatever its state; ``broken`` says why, if it broke."""
        if broken is not None and self._group is not None:
            self._lost = tuple(self._group.members[index].id for index in broken.lost)
        for part in (self._leader, self._channel, self._collective):
            if part is not None:
                part.close()
        self._leader = self._channel = self._collective = self._group = None
        self._abandoned = False
        self._index = 0

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
        self._group, self._index, self._shares = group, index, group.shares
        self._lease_stop = orders.reply.lease_stop_step
        self.slots_per_step = orders.reply.slots_per_step
        size = len(group.members)

        def interrupted() -> bool:
            newest = self._link.orders
            return newest is not None and (
                newest.reply.group is None or newest.reply.group.number != group.number
            )

        hello = {
            "generation": group.number,
            "index": index,
            "committed": -1 if committed is None else committed,
            "elements": gradients.elements,
        }
        if index == 0:
            self._lead(group, hello, holder, gradients, interrupted, orders.reply.lease_seconds)
        else:
            self._follow(group, hello, holder, gradients, interrupted, orders.reply.lease_seconds)
        assert size == 1 or self._collective is not None

    def _lead(
        self,
        group: Group,
        hello: dict[str, Any],
        holder: ModelHolder,
        gradients: Gradients,
        interrupted: Callable[[], bool],
        lease_seconds: float,
    ) -> None:
        if group.restore is Restore.CHECKPOINT:
            holder.restore_checkpoint()
        size = len(group.members)
        if size == 1:
            return
        timeout = FORMING_TIMEOUT_SECONDS
        self._leader = self._listener.accept(self._token, group.number, size, interrupted, timeout)
        problem = _mismatch(hello, self._leader.hellos)
        if problem:
            self._leader.publish({"problem": problem}, interrupted, timeout)
            raise SessionError(problem)
        behind = any(h["committed"] != group.start_step for h in self._leader.hellos.values())
        state = holder.export_state() if behind or group.restore is not Restore.LIVE else None
        store = serve_store(self._host, size)
        welcome = {"port": store.port, "header": state.header if state else None}
        self._leader.publish(welcome, interrupted, timeout)
        self._collective = Collective(
            store,
            self._host,
            0,
            size,
            cuda=gradients.cuda,
            timeout_seconds=_patience(lease_seconds),
        )
        if state is not None:
            self._collective.broadcast(state.flat())

    def _follow(
        self,
        group: Group,
        hello: dict[str, Any],
        holder: ModelHolder,
        gradients: Gradients,
        interrupted: Callable[[], bool],
        lease_seconds: float,
    ) -> None:
        address, timeout = group.members[0].address, FORMING_TIMEOUT_SECONDS
        self._channel = connect(address, hello, self._token, interrupted, timeout)
        welcome = self._channel.receive(interrupted, timeout)
        if "problem" in welcome:
            raise SessionError(str(welcome["problem"]))
        size, host = len(group.members), address.rpartition(":")[0].strip("[]")
        store = join_store(host, int(welcome["port"]), size)
        self._collective = Collective(
            store, self._host, self._index, size,
            cuda=gradients.cuda, timeout_seconds=_patience(lease_seconds),
        )  # fmt: skip
        header = welcome["header"]
        if header is not None:
            flat = torch.empty(payload_bytes(header), dtype=torch.uint8)
            self._collective.broadcast(flat)
            holder.import_state(header, flat)

    # ------------------------------------------------------------------ steps

    def agree(
        self, step: int, slots: list[int], consumed: list[tuple[int, bytes]], *, leave: bool
    ) -> Verdict:
        """Wait until all members have computed their part of a step; all get the same verdict.

        ``slots`` are all that hold samples of this step, ``consumed`` those that were ours.

        Raises:
            GroupBrokenError: a member is gone, the trainer ended the group, or the members did not
                compute every slot of the step once.
        """
        if self.interrupted():
            raise GroupBrokenError("the trainer ended this group")
        own = {"step": step, "consumed": consumed, "leave": leave or self._called_away()}
        if self._channel is not None:
            self._channel.send(own, self.interrupted, ARRIVAL_TIMEOUT_SECONDS)
            verdict = self._channel.receive(self.interrupted, ARRIVAL_TIMEOUT_SECONDS)
        else:
            verdict = self._decide(step, slots, own)
        self._shares = tuple(verdict["shares"])
        return Verdict([(slot, ids) for slot, ids in verdict["consumed"]], verdict["regroup"])

    def _decide(self, step: int, slots: list[int], own: dict[str, Any]) -> dict[str, Any]:
        arrived = [own]
        if self._leader is not None:
            arrived = self._leader.gather(own, self.interrupted, ARRIVAL_TIMEOUT_SECONDS)
        if any(message["step"] != step for message in arrived):
            raise GroupBrokenError(f"members are at steps {[m['step'] for m in arrived]}")
        consumed = [part for message in arrived for part in message["consumed"]]
        computed = sorted(slot for slot, _ in consumed)
        if computed != slots:
            raise GroupBrokenError(f"step {step} has slots {slots}, computed were {computed}")
        self._await_lease(step)
        verdict = {
            "consumed": consumed,
            "regroup": any(message["leave"] for message in arrived),
            "shares": self._newest_shares(),
        }
        if self._leader is not None:
            self._leader.publish(verdict, self.interrupted, ARRIVAL_TIMEOUT_SECONDS)
        return verdict

    def sum_gradients(self, gradients: Gradients, weight: float) -> None:
        """Add the gradients up over the members. Raises GroupBrokenError."""
        if self._collective is not None:
            gradients.reduce(self._collective, weight)

    def _called_away(self) -> bool:
        orders = self._link.orders
        return (
            orders is not None
            and orders.report.generation == self._number
            and orders.reply.directive is Directive.REGROUP
        )

    def _current(self) -> Orders | None:
        orders = self._link.orders
        if orders is None or orders.reply.group is None:
            return None
        return orders if orders.reply.group.number == self._number else None

    def _newest_shares(self) -> tuple[int, ...]:
        orders = self._current()
        shares = orders.reply.shares if orders else ()
        fits = len(shares) == self.size and sum(shares) == sum(self._shares)
        return shares if fits else self._shares

    def _await_lease(self, step: int) -> None:
        """The group may run ahead of the trainer only as far as its lease goes."""
        since: float | None = None
        while True:
            if (orders := self._current()) is not None:
                self._lease_stop = max(self._lease_stop, orders.reply.lease_stop_step)
            if step < self._lease_stop:
                return
            if self.interrupted():
                raise GroupBrokenError("the trainer ended this group")
            if since is None:
                since = time.monotonic()
                logger.info("step %d is beyond the lease: waiting for the trainer", step)
                self._link.publish(committed=step)
            self._link.wait(lambda _: False, timeout=0.05)


def _patience(lease_seconds: float) -> float:
    """Time-out of a collective that all members have entered: half a lease, 5 s at the least."""
    return max(5.0, lease_seconds / 2)


def _mismatch(own: dict[str, Any], hellos: dict[int, dict[str, Any]]) -> str:
    for index, hello in hellos.items():
        if hello.get("elements") != own["elements"]:
            return (
                f"model: member {index} has {hello.get('elements')} numbers to sum and member 0 "
                f"has {own['elements']}: all workers must build the same model"
            )
    return ""
