"""Which slots hold samples, and which of the steps to come a worker will compute: pure functions.

Who computes what is agreed step by step. What a worker will have in later steps is a prediction: it
holds as long as its range within a step stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.data.ledger import SampleOrder, Slot
from penstock.trainer.group.division import WHOLE, Division


class PredictedSlot(NamedTuple):
    """A slot, counted over all epochs, and the indices of its samples."""

    number: int
    indices: list[int]


def filled_slots(
    order: SampleOrder, step: int, skips: Callable[[int], bool]
) -> list[tuple[int, int]]:
    """Slots of a step, counted over all epochs, that hold samples: place in the step, and samples.

    A small last step leaves some empty, and those that ``skips`` names hold samples for nobody.
    """
    epoch, in_epoch = divmod(step, order.steps_per_epoch)
    first = step * order.slots_per_step
    spans = (
        (micro, order.positions(Slot(epoch, in_epoch, micro)))
        for micro in range(order.slots_per_step)
        if not skips(first + micro)
    )
    return [(micro, stop - start) for micro, (start, stop) in spans if start < stop]


def predict_slots(
    order: SampleOrder,
    own: range,
    skips: Callable[[int], bool],
    steps: range,
    division: Division = WHOLE,
) -> Iterator[PredictedSlot]:
    """The slots of some steps that a worker computes whose range in each of them is ``own``."""
    for step in steps if own else ():
        epoch, in_epoch = divmod(step, order.steps_per_epoch)
        mine = [(micro, size) for micro, size in filled_slots(order, step, skips) if micro in own]
        samples = order.step_samples(epoch, in_epoch).tolist() if mine else []
        first = in_epoch * order.global_batch
        for micro, size in mine:
            start = order.positions(Slot(epoch, in_epoch, micro))[0] - first
            cut = division.cut(size)
            indices = samples[start + cut.start : start + cut.stop]
            yield PredictedSlot(step * order.slots_per_step + micro, indices)
