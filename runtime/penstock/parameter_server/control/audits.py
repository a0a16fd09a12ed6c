"""Counts, epoch by epoch, what the parameters that survive were trained on.

Measured on the servers: each keeps the set of slots that it has applied and, apart from that, a
count of its updates. Both belong to the parameters: they move, are saved and go back with them. A
slot is lost if it is not in the set of every server, and repeated if there were more updates than
slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.data.ledger import Ledger, SampleOrder
from penstock.job.protocol import EpochAudit
from penstock.parameter_server.protocol import Applied


def audits_of(
    order: SampleOrder, applied: Sequence[Applied], ledger: Ledger, known: Mapping[int, EpochAudit]
) -> dict[int, EpochAudit]:
    """The audits of epochs that are newly complete on all servers.

    What was repeated is found out as a number; it is booked once, to the epoch that is closed then.
    """
    if not applied:
        return {}
    bad = ledger.quarantine if ledger.state.options.skip_bad else []
    done = min(each.watermark for each in applied)
    unusable = sum(stop - start for start, stop in bad)  # nobody will apply these
    if min(each.slots for each in applied) + unusable >= order.total_slots:
        done = order.total_slots
    slots = order.steps_per_epoch * order.slots_per_step
    epochs = [epoch for epoch in range(done // slots) if epoch not in known]
    found = {}
    for epoch in epochs:
        lost = sum(
            _samples(order, slot)
            for start, stop in bad
            for slot in range(max(start, epoch * slots), min(stop, (epoch + 1) * slots))
        )
        found[epoch] = EpochAudit(
            epoch=epoch,
            samples_seen=order.dataset_size - lost,
            samples_lost=lost,
            samples_repeated=0,
        )
    extra = max(each.pushes - each.slots for each in applied)
    repeated = round(extra * order.samples_per_step / order.slots_per_step)
    repeated -= sum(audit.samples_repeated for audit in known.values())
    if repeated > 0 and epochs:
        last = found[epochs[-1]]
        found[epochs[-1]] = last.model_copy(update={"samples_repeated": repeated})
    return found


def _samples(order: SampleOrder, number: int) -> int:
    start, stop = order.positions(order.slot(number))
    return stop - start
