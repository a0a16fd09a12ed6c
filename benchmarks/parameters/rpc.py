"""The same by torch.distributed.rpc (TensorPipe): the servers' parameters are changed by calls."""

from __future__ import annotations

import socket
import sys
import threading
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed import rpc

from benchmarks.parameters.exchange import (
    DENSE,
    DIM,
    LEARNING_RATE,
    TABLE_ROWS,
    answer,
    spawn,
    work,
)


class Parameters:
    """What a server holds: filled in when it begins to serve."""

    table = torch.empty(0)
    dense = torch.empty(0)
    lock = threading.Lock()


def begin() -> torch.Tensor:
    with Parameters.lock:
        return Parameters.dense.clone()


def pull(ids: torch.Tensor) -> torch.Tensor:
    with Parameters.lock:
        return Parameters.table.index_select(0, ids)


def push(ids: torch.Tensor, gradients: torch.Tensor, dense: torch.Tensor) -> int:
    with Parameters.lock:
        Parameters.table.index_put_((ids,), gradients * -LEARNING_RATE, accumulate=True)
        Parameters.dense.add_(dense, alpha=-LEARNING_RATE)
    return 0


def join(name: str, rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)


def server(commands: Connection, rank: int, servers: int, world: int, port: int) -> None:
    Parameters.table = torch.randn((TABLE_ROWS + servers - 1) // servers, DIM)
    Parameters.dense = torch.zeros(DENSE // servers)
    join(f"server-{rank}", rank, world, port)
    threading.Event().wait()


def worker(
    commands: Connection, number: int, servers: int, workers: int, world: int, port: int
) -> None:
    join(f"worker-{number}", servers + number, world, port)
    names = [f"server-{rank}" for rank in range(servers)]

    def exchange(
        slot: int,
        ids: NDArray[np.int64],
        gradients: NDArray[np.float32],
        dense: NDArray[np.float32],
    ) -> None:
        pieces = torch.from_numpy(dense).chunk(servers)
        for call in [rpc.rpc_async(name, begin) for name in names]:
            call.wait()
        owner = ids % servers
        chosen = [np.flatnonzero(owner == one) for one in range(servers)]
        mine = [torch.from_numpy(ids[some] // servers) for some in chosen]
        calls = [rpc.rpc_async(name, pull, (m,)) for name, m in zip(names, mine, strict=True)]
        values = np.empty((len(ids), DIM), np.float32)
        for some, call in zip(chosen, calls, strict=True):
            values[some] = call.wait().numpy()
        calls = [
            rpc.rpc_async(name, push, (m, torch.from_numpy(gradients[some]), piece))
            for name, m, some, piece in zip(names, mine, chosen, pieces, strict=True)
        ]
        for call in calls:
            call.wait()

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
