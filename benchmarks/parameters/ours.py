"""Penstock's servers, as ``penstock ps`` runs them, and its workers' connections to them."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from benchmarks.parameters.exchange import (
    DENSE,
    DIM,
    LEARNING_RATE,
    TABLE_ROWS,
    answer,
    spawn,
    work,
)
from benchmarks.parameters.orders import TOKEN, Trainer, process
from penstock.parameter_server.arrays import Gradients
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.worker.client import ParameterClient

SPEC = ModelSpec(
    spaces=(SpaceSpec(dim=DIM, tables=(TableSpec(name="table", rows=TABLE_ROWS),)),),
    dense=(DenseSpec(name="dense", shape=(DENSE,)),),
    optimizer=OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=LEARNING_RATE),
)


def worker(commands: Connection, number: int, workers: int, layout: str) -> None:
    """One worker of the job."""
    present = Layout.model_validate_json(layout)
    servers = ParameterClient(SPEC, TOKEN, f"worker-{number}", lambda: present)

    def exchange(
        slot: int,
        ids: NDArray[np.int64],
        gradients: NDArray[np.float32],
        dense: NDArray[np.float32],
    ) -> None:
        servers.begin(slot)
        servers.pull([(0, ids)])
        servers.push(slot, [Gradients(0, ids, gradients)], dense)

    work(commands, exchange, number, workers)


def main(servers: int, workers: int) -> None:
    with ExitStack() as stack:
        trainer = stack.enter_context(Trainer())
        children = [stack.enter_context(process(trainer, rank)) for rank in range(servers)]
        addresses = [trainer.await_server(f"ps-{rank}.0") for rank in range(servers)]
        model = Store(SPEC, range(SPEC.partitions))
        model.initialise()
        layout = trainer.fill(1, addresses, model).model_dump_json()
        started = [spawn(worker, number, workers, layout) for number in range(workers)]
        pids = [child.pid for child in children]
        answer([pipe for _, pipe in started], pids, [pid for pid, _ in started])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
