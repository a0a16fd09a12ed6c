"""The click-log example as a job for benchmarks: one seed for all, and plain PyTorch beside it.

``--plain`` trains with ``torch.optim`` in this process, from the same initial values and on the
same batches in the same order as a session without servers. Else the program is what a worker of a
job runs, or a process alone. Data, model and AUC are those of examples/criteo.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from penstock.trainer import ps

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "criteo"))
data: Any = importlib.import_module("data")
served: Any = importlib.import_module("wide_deep")
plain: Any = importlib.import_module("wide_deep_plain")

DIM = 4


def loss_of(model: nn.Module, clicks: Any, batch: torch.Tensor) -> torch.Tensor:
    """The mean loss of some samples."""
    numbers, ids, labels = clicks.make(batch)
    return functional.binary_cross_entropy_with_logits(model(numbers, ids), labels)


def session_of(model: nn.Module, options: argparse.Namespace) -> tuple[Any, Any]:
    """The optimizer and the session of a model."""
    optimizer = ps.Optimizer(
        model,
        "adagrad",
        lr=options.learning_rate,
        initial_accumulator_value=options.accumulator,
    )
    return optimizer, ps.session(
        model,
        optimizer,
        dataset_size=options.samples,
        batch_size=options.batch_size,
        epochs=options.epochs,
        seed=options.seed,
        staleness=options.staleness,
        checkpoint_every=options.checkpoint_every,
    )


def train_plain(clicks: Any, options: argparse.Namespace) -> nn.Module:
    """Train with torch.optim; everything else is as a session has it."""
    start = served.WideDeep(clicks.sizes, DIM)
    _, session = session_of(start, options)
    with session:
        state = session.state_dict()
    model: nn.Module = plain.WideDeep(clicks.sizes, DIM)
    model.load_state_dict({**state, "starts": model.starts})
    optimizer = torch.optim.Adagrad(
        model.parameters(),
        lr=options.learning_rate,
        initial_accumulator_value=options.accumulator,
    )
    for slot in range(session.order.total_slots):
        batch = torch.from_numpy(session.order.samples(session.order.slot(slot)))
        loss = loss_of(model, clicks, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def main() -> None:
    """Train, and say how well samples that follow those of the training are told apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--test-samples", type=int, default=40_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--accumulator", type=float, default=1e-4, help="Adagrad's initial one")
    parser.add_argument("--cap", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--staleness", type=int)
    parser.add_argument("--checkpoint-every", type=int, default=200)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--batch-seconds", type=float, default=0.0, help="pause in each batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    clicks = data.Clicks(cap=options.cap)
    test = torch.arange(options.samples, options.samples + options.test_samples)
    if options.plain:
        trained = train_plain(clicks, options)
        print(f"penstock-result {json.dumps({'auc': served.evaluate(trained, clicks, test)})}")
        return
    model = served.WideDeep(clicks.sizes, DIM)
    optimizer, session = session_of(model, options)
    with session:
        for batch in session:
            loss = loss_of(model, clicks, batch)
            time.sleep(options.batch_seconds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if session.is_chief:
            session.report(auc=served.evaluate(model, clicks, test))


if __name__ == "__main__":
    main()
