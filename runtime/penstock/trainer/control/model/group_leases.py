"""A group's part in the ledger: all of its members together are one holder of leases.

The group is kept supplied with steps for about a minute, so that it trains on while the trainer is
away; what it commits is acknowledged step by step; when a member's program raises an error in the
middle of a slot, that member has failed on it. The model's history is what counts: where ledger and
model differ, the ledger follows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from penstock.data.ledger import Ledger, LedgerError, SampleOrder, SizedOrder
from penstock.job.protocol import Group
from penstock.trainer.control.model.events import Say

LEAD_SECONDS: Final = 60.0
MIN_LEAD_STEPS: Final = 64
MAX_LEAD_STEPS: Final = 1 << 16
MAX_SKIPPED_RANGES: Final = 1024
"""With more quarantined ranges than this, skipping them is no answer: the data are unusable."""

_NAMED: Final = 5


@dataclass(frozen=True)
class GroupLeases:
    """The leases of one group."""

    ledger: Ledger
    order: SampleOrder
    group: Group

    @property
    def holder(self) -> str:
        """The name under which the group leases."""
        return f"group-{self.group.number}"

    def begin(self) -> None:
        """A new group: the ledger takes its model's word, and it alone holds leases from now on."""
        position = self.group.start_step * self.order.slots_per_step
        if self.ledger.watermark != position or self.ledger.leases():
            self.ledger.adopt(position)

    def acknowledge(self, committed: int, now: float) -> bool:
        """The group has committed so many steps; says whether that is news. Renews its leases."""
        position = committed * self.order.slots_per_step
        news = position > self.ledger.watermark
        if news:
            for lease in self.ledger.leases(self.holder):
                if lease.start < position:
                    self.ledger.complete(lease.fence, lease.start, min(lease.stop, position))
            if self.ledger.watermark < position:  # a lease of an earlier life of ours, or expired
                self.ledger.adopt(position)
        self.ledger.renew(self.holder, now)
        return news

    def extend(self, now: float, steps_per_second: float) -> None:
        """Keep the group supplied with steps for a minute, so that it can go on without us."""
        slots = self.order.slots_per_step
        lead = min(max(int(steps_per_second * LEAD_SECONDS), MIN_LEAD_STEPS), MAX_LEAD_STEPS)
        want = min(self.ledger.watermark + lead * slots, self.order.total_slots)
        have = self.stop_step * slots
        while have < want:
            lease = self.ledger.lease(self.holder, now, want - have, align=slots)
            if lease is None:
                return
            have = lease.stop

    @property
    def stop_step(self) -> int:
        """Steps below it may be committed by the group."""
        stops = [lease.stop for lease in self.ledger.leases(self.holder)]
        return max(stops, default=self.ledger.watermark) // self.order.slots_per_step

    def blame(self, member: str, slot: int) -> list[Say]:
        """A member failed on a slot; what is not the group's to work on is passed over."""
        for lease in self.ledger.leases(self.holder):
            if not lease.start <= slot < lease.stop:
                continue
            try:
                quarantined = self.ledger.fail(lease.fence, slot, member)
            except LedgerError:
                return []  # consumed, or this failure is known already
            place = f"slot {slot} (samples {_samples(self.order, slot)})"
            said = [Say(logging.WARNING, f"{member} failed on {place}")]
            if quarantined:
                text = f"{place} failed on too many workers: it is in quarantine"
                said.append(Say(logging.ERROR, text))
            return said
        return []


def unusable(ledger: Ledger, order: SampleOrder) -> str:
    """Why a group cannot go on because of quarantined slots; empty when it can."""
    bad = ledger.quarantine
    if not bad:
        return ""
    named = "; ".join(
        f"slot {slot} (samples {_samples(order, slot)})"
        for slot in [slot for start, stop in bad[:_NAMED] for slot in range(start, stop)][:_NAMED]
    )
    total = sum(stop - start for start, stop in bad)
    more = f" and {total - _NAMED} more" if total > _NAMED else ""
    failed = f"{named}{more} failed on {ledger.state.options.max_failures} different workers each"
    if not ledger.state.options.skip_bad:
        return f"{failed}; mend the data, or set input.skipBad to train without them"
    if len(bad) > MAX_SKIPPED_RANGES:
        return f"{failed}; more than {MAX_SKIPPED_RANGES} ranges are not skipped: mend the data"
    return ""


def _samples(order: SampleOrder, slot: int) -> str:
    if isinstance(order, SizedOrder):
        return f"of step {slot // order.slots_per_step}, by length"
    samples = order.samples(order.slot(slot)).tolist()
    return ", ".join(map(str, samples[:_NAMED])) + (", ..." if len(samples) > _NAMED else "")
