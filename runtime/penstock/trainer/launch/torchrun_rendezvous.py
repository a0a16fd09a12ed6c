"""A rendezvous of torchrun's agents that the job's trainer decides.

To the trainer torchrun's agent is a member like an agent of ``penstock run --nproc-per-node``
(`penstock.trainer.control.model.rendezvous`): the pods are known, so nobody waits for a last call,
and the trainer outlives each of them. What torchrun itself decides stays as it is: a process that
fails, also of a lost peer, costs its agent one of ``--max-restarts``.

- Each world has a store of its own, hosted by the agent of its first pod and used by its processes,
  too: it is lost with that pod, and so is the world. Since nobody knows before who will be the
  first, each agent that waits for a world has such a store at hand.
- An agent has a world only once all of its agents were seen in its store: one that is lost before
  costs the others another world, and no failure.
"""

from __future__ import annotations

import logging
import secrets
import sys
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any, Final

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from penstock.base.listener import split_address, unbracketed
from penstock.job.identities import PodIdentity
from penstock.job.protocol import Directive, Group, MemberId, Phase, SessionReport
from penstock.trainer.group.collective import join_store, serve_store
from penstock.trainer.group.step_barrier import GroupBrokenError
from penstock.trainer.group.trainer_connection import (
    Orders,
    SupersededError,
    TrainerConnection,
    TrainerConnectionError,
)

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
MEET_SECONDS: Final = 120.0
"""How long agents of one world, all of which the trainer hears, may take to meet in its store."""
STORE_SECONDS: Final = 60.0
"""How long one call of torchrun's to the store may take."""
FLUSH_SECONDS: Final = 5.0
"""How long the trainer is tried to be told that this agent's processes have ended well."""


class TrainerRendezvous(RendezvousHandler):
    """See the module's docstring; torchrun calls it from one thread."""

    def __init__(self, backend: str, address: str, identity: PodIdentity, run_id: str) -> None:
        """Nothing is asked yet.

        Args:
            backend: the name by which torchrun knows this.
            address: HOST:PORT of the trainer.
            identity: of this pod.
            run_id: the same for all worlds of a job.
        """
        self._backend = backend
        self._identity = identity
        self._run_id = run_id
        self._member = MemberId(
            rank=identity.rank, incarnation=identity.incarnation, nonce=secrets.token_hex(8)
        )
        self._number = 0  # of the newest world
        self._own_store: Any = serve_store(identity.ip, 1)
        first = SessionReport(
            member=self._member, phase=Phase.READY, address=self._own_address(), data=None
        )
        self._phase = first.phase
        self._line = TrainerConnection(address, identity.token, first)
        self._line.start()
        self._on_its_own = False  # the trainer has gone for good

    # ------------------------------------------------------------------ what torchrun asks

    def get_backend(self) -> str:
        """See `RendezvousHandler`."""
        return self._backend

    @property
    def use_agent_store(self) -> bool:
        """The processes of a world use the store of its agents."""
        return True

    def get_run_id(self) -> str:
        """See `RendezvousHandler`."""
        return self._run_id

    def is_closed(self) -> bool:
        """The trainer says what is through, to each agent that asks for a world."""
        return False

    def set_closed(self) -> None:
        """See `is_closed`."""

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for a world with this pod in it.

        Raises:
            RendezvousClosedError: another process has this pod's place.
            RendezvousConnectionError: the trainer refuses this agent, or is away for good.
            RendezvousTimeoutError: the trainer hears agents that do not come to their store.
            SystemExit: with 0: the job's other processes have trained to the end.
        """
        try:
            while True:
                group = self._next_group()
                store = self._meet(group)
                if store is not None:
                    return _entered(group, self._member, store)
                logger.info("world %d has ended before it began", group.number)
        except SupersededError as error:
            raise RendezvousClosedError(str(error)) from error
        except TrainerConnectionError as error:
            raise RendezvousConnectionError(str(error)) from error

    def num_nodes_waiting(self) -> int:
        """1 where the present world is to end, so that torchrun asks for the next one; else 0.

        Raises:
            RendezvousClosedError: another process has this pod's place.
        """
        try:
            return int(self._has_ended())
        except SupersededError as error:
            raise RendezvousClosedError(str(error)) from error
        except TrainerConnectionError as error:
            if not self._on_its_own:
                logger.error("%s; this world goes on, and is the last one", error)
            self._on_its_own = True
            return 0

    def shutdown(self) -> bool:
        """Say that this agent's processes have ended well, unless an error is why it is called."""
        if sys.exception() is None and not self._on_its_own:
            self._say_finished()
        self._line.close()
        self._own_store = None
        return True

    # ------------------------------------------------------------------ inside

    def _own_address(self) -> str:
        host = unbracketed(self._identity.ip)
        return (
            f"[{host}]:{self._own_store.port}" if ":" in host else f"{host}:{self._own_store.port}"
        )

    def _next_group(self) -> Group:
        """Say that nothing runs here, and wait to be put into a group."""
        if self._phase is not Phase.READY:
            self._own_store = serve_store(self._identity.ip, 1)
            self._publish(Phase.READY, address=self._own_address(), group=None)
        while True:
            orders = self._line.wait(self._is_call, POLL_SECONDS)
            if orders is None:
                continue
            if orders.reply.directive is Directive.FINISH:
                logger.info("the job's other processes have trained to the end")
                self._say_finished()
                raise SystemExit(0)
            assert orders.reply.group is not None
            self._number = orders.reply.group.number
            self._publish(Phase.TRAINING, generation=self._number, group=orders.reply.group)
            return orders.reply.group

    def _is_call(self, orders: Orders) -> bool:
        if not self._is_answer(orders):
            return False
        group = orders.reply.group
        joins = orders.reply.directive is Directive.JOIN and group is not None
        newer = group is not None and group.number > self._number
        return orders.reply.directive is Directive.FINISH or (joins and newer)

    def _is_answer(self, orders: Orders) -> bool:
        """Whether orders are for what this agent is at now."""
        return (orders.report.phase, orders.report.generation) == (self._phase, self._number)

    def _has_ended(self) -> bool:
        """Whether the present world is over. Raises TrainerConnectionError."""
        orders = self._line.orders
        over = (Directive.REGROUP, Directive.ABANDON)
        return orders is not None and self._is_answer(orders) and orders.reply.directive in over

    def _meet(self, group: Group) -> Any:
        """The store of a world once all of its agents are there; None: it has ended meanwhile."""
        present = [f"penstock/agents/{index}" for index in range(len(group.members))]
        deadline = monotonic() + MEET_SECONDS
        store: Any = None
        while not self._has_ended():
            if monotonic() > deadline:
                address = group.members[0].address
                raise RendezvousTimeoutError(
                    f"not all agents of world {group.number} came to its store at {address} within "
                    f"{MEET_SECONDS:.0f} s: look whether pods reach each other at any port"
                )
            with suppress(GroupBrokenError, RuntimeError):  # not all there: the trainer says more
                store = store or self._store_of(group)
                store.set(present[group.index_of(self._member) or 0], "")
                store.wait(present, timedelta(seconds=POLL_SECONDS))
                store.set_timeout(timedelta(seconds=STORE_SECONDS))
                return store
        return None

    def _store_of(self, group: Group) -> Any:
        """A world's store: this agent's own where it is the first. Raises GroupBrokenError."""
        if group.members[0].id == self._member:
            return self._own_store
        return join_store(*split_address(group.members[0].address), len(group.members))

    def _publish(self, phase: Phase, **changes: object) -> None:
        self._phase = phase
        self._line.publish(phase=phase, **changes)

    def _say_finished(self) -> None:
        self._publish(Phase.FINISHED)
        self._line.flush(FLUSH_SECONDS)


def _entered(group: Group, member: MemberId, store: Any) -> RendezvousInfo:
    """What torchrun is told of a world all of whose agents are there."""
    host, port = split_address(group.members[0].address)
    index, size = group.index_of(member) or 0, len(group.members)
    logger.info("world %d: pod %d of %d; store at %s:%d", group.number, index, size, host, port)
    return RendezvousInfo(store, index, size, RendezvousStoreInfo(host, port))
