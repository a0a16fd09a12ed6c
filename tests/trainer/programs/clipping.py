"""A session whose gradients are clipped: arguments: a file for the weights, slots per step."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional

from penstock.trainer import elastic

torch.set_num_threads(1)
SAMPLES, GLOBAL_BATCH, EPOCHS, SEED, MAX_NORM = 50, 16, 6, 3, 0.05
FEATURES = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
TARGETS = (FEATURES.sum(1) > 0).long()


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer, the same in each process."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def main() -> None:
    """Train."""
    model, optimizer = parts()

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=MAX_NORM)

    optimizer.register_step_pre_hook(clip)
    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=SAMPLES,
        global_batch=GLOBAL_BATCH,
        epochs=EPOCHS,
        slots_per_step=int(sys.argv[2]),
        seed=SEED,
    ) as session:
        widest = 0
        for step in session:
            for micro in step:
                output = model(FEATURES[micro.indices])
                micro.backward(functional.cross_entropy(output, TARGETS[micro.indices]))
            step.commit()
            widest = max(widest, session.world_size)
        if session.is_chief:
            torch.save(model.state_dict(), sys.argv[1])
            session.report(widest=widest)


if __name__ == "__main__":
    main()
