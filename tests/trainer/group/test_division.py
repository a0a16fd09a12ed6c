"""The parts of a slot hold each of its samples once, and nobody is left without any."""

from __future__ import annotations

import pytest
import torch

from penstock.data.ledger import SampleOrder
from penstock.trainer.group.division import WHOLE, Cut, Division
from penstock.trainer.group.step import Step
from penstock.trainer.group.step_slots import predict_slots


class Alone:
    order = SampleOrder(dataset_size=22, global_batch=11, slots_per_step=4, epochs=1, seed=3)
    interrupted = False

    def skips(self, slot: int) -> bool:
        return False

    def commit(self, step: Step, seconds: float) -> bool:
        return True


@pytest.mark.parametrize("size", range(12))
@pytest.mark.parametrize("parts", range(1, 6))
def test_each_sample_counts_once(size: int, parts: int) -> None:
    cuts = [Division(part, parts).cut(size) for part in range(parts)]
    counted = [at for cut in cuts for at in range(cut.start, cut.start + cut.counted)]
    assert counted == list(range(size))
    # A layer's collectives need everybody: who has no sample of its own computes another's.
    assert all(0 <= cut.start < cut.stop <= size for cut in cuts if size)


def test_one_process_has_the_whole_slot() -> None:
    assert WHOLE.cut(7) == Cut(0, 7, 7)


def test_parts_of_a_step_have_its_samples_weights_and_gradient() -> None:
    plain = torch.nn.Linear(1, 1, bias=False)
    for micro in Step(Alone(), 0, range(4)):
        micro.backward(plain(micro.indices.float()[:, None]).mean())
    # 5 parts of slots of 2 or 3 samples: some parts have none of their own.
    parts = [Step(Alone(), 0, range(4), Division(part, 5)) for part in range(5)]
    gradients = []
    for step in parts:
        model = torch.nn.Linear(1, 1, bias=False)
        for micro in step:
            micro.backward(model(micro.indices.float()[:, None]).mean())
        gradients.append(model.weight.grad)
    consumed = sorted(
        torch.frombuffer(bytearray(micro.consumed), dtype=torch.int64).tolist()[0]
        for step in parts
        for micro in step.micros
        if micro.consumed
    )
    assert consumed == sorted(parts[0].samples.tolist())
    assert sum(micro.weight for step in parts for micro in step.micros) == pytest.approx(1.0)
    # What a sharded layer makes of the parts' gradients is their mean.
    mean = torch.stack([one for one in gradients if one is not None]).mean(0)
    assert plain.weight.grad is not None
    torch.testing.assert_close(mean, plain.weight.grad)
    losses: dict[int, float] = {}
    for step in parts:
        for slot, loss in step.losses().items():
            losses[slot] = losses.get(slot, 0.0) + loss
    assert set(losses) == {0, 1, 2, 3}


def test_random_numbers_are_a_parts_own_and_the_first_has_those_of_a_whole_slot() -> None:
    def drawn(division: Division) -> list[float]:
        return [float(torch.rand(())) for _ in Step(Alone(), 1, range(4), division)]

    assert drawn(Division(0, 2)) == drawn(WHOLE) != drawn(Division(1, 2))
    assert drawn(Division(1, 2)) == drawn(Division(1, 2, speaks=False))  # tensor parallelism


def test_batches_are_made_ahead_for_the_part() -> None:
    division, session = Division(1, 2), Alone()
    ahead = predict_slots(session.order, range(4), session.skips, range(2), division)
    taken = [
        micro.indices.tolist()
        for number in range(2)
        for micro in Step(session, number, range(4), division)
    ]
    assert [slot.indices for slot in ahead] == taken
