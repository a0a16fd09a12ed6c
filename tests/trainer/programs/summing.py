"""An elastic session whose workers cannot sum as they are, or could not by NCCL: see the tests."""

from __future__ import annotations

import sys

import torch

from penstock.trainer import elastic
from penstock.trainer.group import regrouping
from penstock.trainer.group.backend_choice import Device, Equipment
from penstock.trainer.group.collective import Collective, Gradients
from penstock.trainer.group.step_barrier import GroupBrokenError


def share_one_gpu(self: Gradients) -> Equipment:
    """Say what two workers on one GPU say; the gradients are on the CPU."""
    return Equipment((Device("cuda", "GPU-1234", "here/0:3b:0"),), nccl=True)


def sum_what_gloo_cannot(self: Collective, tensors: object, interrupted: object) -> None:
    """Ask gloo for a sum of a type that it does not know."""
    plain_sum(self, [torch.zeros(3).to(torch.float8_e4m3fn)])


def lose_a_member(self: Collective, tensors: object, interrupted: object) -> None:
    """Fail as a network does that carries control messages and no sums."""
    raise GroupBrokenError("a member was lost in a sum: nothing arrives")


plain_sum = Collective.sum
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
match sys.argv[1]:
    case "type":
        Collective.sum = sum_what_gloo_cannot  # type: ignore[assignment,method-assign]  # a fault
    case "shared":
        Gradients.equipment = share_one_gpu  # type: ignore[method-assign]  # stands in for GPUs
    case "broken":
        Collective.sum = lose_a_member  # type: ignore[assignment,method-assign]  # a fault
        regrouping.MAX_BREAKS = 5  # type: ignore[misc]  # all 20 take two minutes
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with elastic.session(
    model=model, optimizer=optimizer, dataset_size=64, global_batch=8, epochs=2, slots_per_step=2
) as session:
    for step in session:
        for micro in step:
            micro.backward(model(torch.ones(len(micro.indices), 4)).square().mean())
        step.commit()
    if session.is_chief:
        session.report()
