"""Processes that lease slots on their own, each at its own pace, instead of sharing steps.

`IndependentLeases` serves them from the job's ledger: acknowledgements in, the next lease out,
sized by the holder's speed. With guarantee ``Unsharded`` each rank has a ledger of its own, which
lives as long as the trainer: nothing is promised about the union of what the workers see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.base.enums import Guarantee
from penstock.base.fields import MAX_REPLICAS
from penstock.data.ledger import (
    Ledger,
    LedgerError,
    LedgerOptions,
    SampleOrder,
    StaleLeaseError,
    lease_slots,
)
from penstock.job.identities import consumer_name
from penstock.job.protocol import AgentReport, LeaseReply, LeaseRequest, ProcessState

KILLED: Final = (137, 143)
"""Exit codes of SIGKILL and SIGTERM: somebody else ended the process."""


class IndependentLeases:
    """The holders of one job."""

    def __init__(self, new_ledger: Callable[[LedgerOptions], Ledger]) -> None:
        self.active = False  # whether anybody has leased
        self._new_ledger = new_ledger
        self._seen: dict[str, float] = {}
        self._own: dict[str, Ledger] = {}  # by rank, with guarantee Unsharded

    def check(self, request: LeaseRequest, shared: Ledger, guarantee: Guarantee) -> None:
        """Whether a request can be true; changes nothing.

        Raises:
            LedgerError: an acknowledgement is of slots that are not, or no more, in its lease.
        """
        ledger = shared
        if guarantee is Guarantee.UNSHARDED:
            own = self._own.get(_rank_part(request.holder))
            if own is None:
                return
            ledger = own
        ledger.state.check_acknowledgements(request.completed, request.failed)

    def serve(
        self,
        request: LeaseRequest,
        shared: Ledger,
        order: SampleOrder,
        guarantee: Guarantee,
        now: float,
    ) -> LeaseReply:
        """Take in acknowledgements and hand out a lease.

        Raises:
            LedgerError: the job cannot go on, or has no more ranks; what is false `check` tells.
        """
        unsharded = guarantee is Guarantee.UNSHARDED
        ledger = self._ledger(request.holder, shared) if unsharded else shared
        term = shared.state.options.lease_seconds
        self._seen[request.holder] = now
        refused = _settle(request, ledger)
        ledger.expire(now)
        ledger.renew(request.holder, now)
        alive = self._alive(now - term)
        lease = None
        if request.max_slots:
            slots = lease_slots(
                remaining=order.total_slots - ledger.consumed,
                holders=1 if unsharded else alive,
                lease_seconds=term,
                slot_seconds=request.slot_seconds,
                max_slots=request.max_slots,
            )
            lease = ledger.lease(request.holder, now, slots)
        ledger.check_end()
        return LeaseReply(
            fence=lease.fence if lease else None,
            start=lease.start if lease else 0,
            stop=lease.stop if lease else 0,
            order_seed=order.seed + (_rank_of(request.holder) if unsharded else 0),
            slots_per_step=order.slots_per_step,
            lease_seconds=term,
            refused=tuple(refused),
            finished=ledger.finished,
        )

    def look_after(self, report: AgentReport, shared: Ledger, now: float) -> None:
        """An agent vouches for its process, however long a shard takes; or the process has ended.

        Then its leases go back, and if it crashed on its own, what it worked on is to blame.
        """
        own = consumer_name(report.rank, report.incarnation)
        ledger = self._own.get(_rank_part(own), shared)
        for holder in {lease.holder for lease in ledger.leases()}:
            if holder.partition("/")[0] != own:
                continue
            if report.state is ProcessState.RUNNING:
                ledger.renew(holder, now)
            elif report.exit_code in (0, None, *KILLED):
                ledger.release(holder)
            else:
                ledger.blame(holder)

    def finished(self, shared: Ledger) -> bool:
        """Whether every holder has had all data."""
        ledgers = self._own.values() or [shared]
        return all(ledger.finished for ledger in ledgers)

    def _ledger(self, holder: str, shared: Ledger) -> Ledger:
        rank = _rank_part(holder)
        if rank not in self._own:
            if len(self._own) >= MAX_REPLICAS:
                raise LedgerError(
                    f"holder = {holder!r}: {MAX_REPLICAS} workers have had data already, and a job "
                    "has no more ranks; name a holder worker-<rank>.<incarnation>"
                )
            self._own[rank] = self._new_ledger(shared.state.options)
        return self._own[rank]

    def _alive(self, since: float) -> int:
        """Holders that reported since then; the others are forgotten."""
        self._seen = {name: seen for name, seen in self._seen.items() if seen >= since}
        return len(self._seen)


def _settle(request: LeaseRequest, ledger: Ledger) -> list[int]:
    """Take in what a holder says about its leases; the fencing numbers that had ended."""
    refused = []
    for fence, start, stop in request.completed:
        try:
            ledger.complete(fence, start, stop)
        except StaleLeaseError:
            refused.append(fence)
    for fence, slot in request.failed:
        try:
            ledger.fail(fence, slot)
        except StaleLeaseError:
            refused.append(fence)
    for fence in request.returned:
        try:
            ledger.give_back(fence)
        except StaleLeaseError:
            refused.append(fence)
    if request.held is not None:
        for lease in ledger.leases(request.holder):
            if lease.fence not in request.held:  # the answer that brought it was lost
                ledger.give_back(lease.fence)
    return refused


def _rank_part(holder: str) -> str:
    return holder.partition(".")[0]


def _rank_of(holder: str) -> int:
    digits = _rank_part(holder).rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0
