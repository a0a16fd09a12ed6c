"""pyzmq, PUSH to PULL without copies: the alternative to plain sockets that was tried."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import zmq

from benchmarks import programs
from benchmarks.dataplane.measure import (
    CONSUMER_CORE,
    PRODUCER_CORE,
    Request,
    pin,
    ready_batch,
    serve,
)


def produce(address: str, size: int, tensors: int) -> None:
    pin(PRODUCER_CORE)
    socket = zmq.Context().socket(zmq.PUSH)
    socket.sndhwm = 2
    socket.connect(address)
    parts = list(ready_batch(size, tensors).values())
    while True:
        socket.send_multipart(parts, copy=False)


def start(wanted: Request) -> Iterator[Any]:
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = 2
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    address = f"tcp://127.0.0.1:{port}"
    arguments = ["produce", address, str(wanted["bytes"]), str(wanted["tensors"])]
    producer = subprocess.Popen([sys.executable, "-m", "benchmarks.dataplane.zmq", *arguments])
    try:
        while True:
            parts = socket.recv_multipart(copy=False)
            yield [np.frombuffer(part.buffer, np.uint8) for part in parts]
    finally:
        programs.kill(producer)
        context.destroy(linger=0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        produce(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        pin(CONSUMER_CORE)
        serve(start)
