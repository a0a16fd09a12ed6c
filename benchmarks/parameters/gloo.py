"""The same by a plain loop over torch.distributed's gloo: send and receive.

Ranks below the number of servers are servers. Each owns the rows whose number is its rank modulo
the number of servers, and a piece of the dense vector, and has a thread for each worker (to
receive from any rank costs gloo milliseconds). A worker asks all servers before it awaits
the first answer, as ours does.
"""

from __future__ import annotations

import socket
import sys
import threading
from multiprocessing.connection import Connection

import numpy as np
import torch
import torch.distributed as dist
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

BEGIN, PULL, PUSH = range(3)


def join(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)


def server(commands: Connection, rank: int, servers: int, world: int, port: int) -> None:
    join(rank, world, port)
    table = torch.randn((TABLE_ROWS + servers - 1) // servers, DIM)
    dense = torch.zeros(DENSE // servers)
    lock = threading.Lock()

    def serve(caller: int) -> None:
        question = torch.empty(2, dtype=torch.int64)
        done = torch.zeros(1, dtype=torch.int64)
        while True:
            dist.recv(question, caller)
            kind, count = question.tolist()
            if kind == BEGIN:
                with lock:
                    values = dense.clone()
                dist.send(values, caller)
                continue
            ids = torch.empty(count, dtype=torch.int64)
            dist.recv(ids, caller)
            if kind == PULL:
                with lock:
                    values = table.index_select(0, ids)
                dist.send(values, caller)
                continue
            gradients, dense_gradients = torch.empty(count, DIM), torch.empty(DENSE // servers)
            dist.recv(gradients, caller)
            dist.recv(dense_gradients, caller)
            with lock:  # the quickest way that PyTorch has on a CPU
                table.index_put_((ids,), gradients * -LEARNING_RATE, accumulate=True)
                dense.add_(dense_gradients, alpha=-LEARNING_RATE)
            dist.send(done, caller)

    threads = [threading.Thread(target=serve, args=(caller,)) for caller in range(servers, world)]
    for thread in threads:
        thread.start()


def worker(
    commands: Connection, number: int, servers: int, workers: int, world: int, port: int
) -> None:
    join(servers + number, world, port)
    every = range(servers)

    def exchange(
        slot: int,
        ids: NDArray[np.int64],
        gradients: NDArray[np.float32],
        dense: NDArray[np.float32],
    ) -> None:
        pieces = torch.from_numpy(dense).chunk(servers)
        ask([[torch.tensor([BEGIN, 0])] for _ in every], [torch.empty_like(p) for p in pieces])
        owner = ids % servers
        chosen = [np.flatnonzero(owner == one) for one in every]
        mine = [torch.from_numpy(ids[some] // servers) for some in chosen]
        rows = [torch.empty(len(some), DIM) for some in chosen]
        ask([[torch.tensor([PULL, len(m)]), m] for m in mine], rows)
        values = np.empty((len(ids), DIM), np.float32)
        for some, part in zip(chosen, rows, strict=True):
            values[some] = part.numpy()
        ask(
            [
                [torch.tensor([PUSH, len(m)]), m, torch.from_numpy(gradients[some]), piece]
                for m, some, piece in zip(mine, chosen, pieces, strict=True)
            ],
            [torch.empty(1, dtype=torch.int64) for _ in every],
        )

    def ask(questions: list[list[torch.Tensor]], answers: list[torch.Tensor]) -> None:
        sent = [dist.isend(part, one) for one, parts in enumerate(questions) for part in parts]
        awaited = [dist.irecv(into, one) for one, into in enumerate(answers)]
        for request in [*sent, *awaited]:
            assert request is not None
            request.wait()

    work(commands, exchange, number, workers)


def main(servers: int, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    world = servers + workers
    serving = [spawn(server, rank, servers, world, port) for rank in range(servers)]
    started = [spawn(worker, n, servers, workers, world, port) for n in range(workers)]
    answer([pipe for _, pipe in started], [p for p, _ in serving], [p for p, _ in started])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
