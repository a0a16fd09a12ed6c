"""What is predicted of the steps to come is what the steps then hand out."""

from __future__ import annotations

import pytest

from penstock.data.ledger import SampleOrder
from penstock.trainer.group.step import Step
from penstock.trainer.group.step_slots import filled_slots, predict_slots

ORDER = SampleOrder(dataset_size=50, global_batch=16, slots_per_step=4, epochs=3, seed=5)


class Session:
    """What a step asks its session for."""

    order = ORDER
    interrupted = False

    def skips(self, slot: int) -> bool:
        return slot == 21

    def commit(self, step: Step, seconds: float, /) -> bool:
        return True


@pytest.mark.parametrize("own", [range(4), range(1), range(1, 3), range(3, 4), range(2, 2)])
def test_a_range_that_stays_is_predicted_slot_by_slot(own: range) -> None:
    session = Session()
    handed = [
        (step * 4 + micro.slot.micro, micro.indices.tolist())
        for step in range(3, 9)
        for micro in Step(session, step, own)
    ]
    predicted = predict_slots(ORDER, own, session.skips, range(3, 9))
    assert [(slot.number, slot.indices) for slot in predicted] == handed


def test_empty_and_skipped_slots_hold_samples_for_nobody() -> None:
    assert filled_slots(ORDER, 3, lambda slot: False) == [(1, 1), (3, 1)], "2 samples in 4 slots"
    assert filled_slots(ORDER, 5, lambda slot: slot == 21) == [(0, 4), (2, 4), (3, 4)]


def test_who_has_no_range_has_no_slots_and_looks_through_no_steps() -> None:
    def never(slot: int) -> bool:
        raise AssertionError(slot)

    assert list(predict_slots(ORDER, range(2, 2), never, range(12))) == []
