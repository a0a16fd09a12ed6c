"""A program with one listener of ours, for attacks: ``python program.py KIND``.

It prints the listener's address. For each line that it is sent it does what such a program does
beside, which is to open files, and prints what came of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

TOKEN = "the job's token"
DESCRIPTORS = 256
BACKGROUND: list[Any] = []


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def work() -> None:
    """Open files, as often as asked."""
    for _ in sys.stdin:
        try:
            files = [os.open(__file__, os.O_RDONLY) for _ in range(20)]
        except OSError as error:
            say(f"failed: {error}")
        else:
            for each in files:
                os.close(each)
            say("done")


def consumer() -> None:
    from penstock.data.consuming.consumer import Consumer

    made = Consumer(token=TOKEN, host="127.0.0.1")
    BACKGROUND.append(made)
    say(f"{made.address} {made.local}")


def parameter_server() -> None:
    from penstock.parameter_server.server.process import ParameterServer
    from penstock.parameter_server.server.settings import ServerSettings

    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    made = ParameterServer(ServerSettings(trainer=f"127.0.0.1:{nobody}", token=TOKEN))
    made.start()
    BACKGROUND.append(made)
    say(made.address)


def leader() -> None:
    from penstock.trainer.group.step_barrier import Listener

    made = Listener("127.0.0.1")
    BACKGROUND.append(made)

    def accept() -> None:
        while True:
            made.accept(TOKEN, 1, 2, lambda: False, 600).close()

    threading.Thread(target=accept, daemon=True).start()
    say(made.address)


def readiness() -> None:
    from penstock.data.serving.readiness import Readiness

    made = Readiness("127.0.0.1", 0)
    made.show(True)
    BACKGROUND.append(made)
    listener = made._listener
    assert listener is not None
    say("{}:{}".format(*listener.getsockname()))


def store() -> None:
    import torch

    from penstock.trainer.group.backend_choice import Backend
    from penstock.trainer.group.collective import Collective, serve_store

    host = "127.0.0.9"
    made = serve_store(host, 1)
    group = Collective(made, host, 0, 1, backend=Backend.GLOO, timeout_seconds=10)
    numbers = torch.ones(3)
    group.sum([numbers])
    BACKGROUND.extend((made, group))
    say(f"{host}:{made.port}")


def processes() -> None:
    from penstock.trainer.processes import Processes

    made = Processes()
    BACKGROUND.append(made)
    say(made.name)
    for _ in sys.stdin:
        made.receive()
        say(f"knows {len(made.read() or ())}")


def cache() -> None:
    """Its socket for programs, and the port for other nodes; it keeps the files of its folder."""
    from penstock.base.listener import address_of, create_listener, create_local_listener
    from penstock.data.cache.node.contents import Contents
    from penstock.data.cache.node.daemon import CacheDaemon
    from penstock.data.cache.peers import Peers

    place, remote = f"penstock-attacked-{os.getpid()}", create_listener("127.0.0.1", 0)
    peers = Peers(address_of(remote), (), TOKEN, 1.0)
    daemon = CacheDaemon(Contents(1 << 20, [str(Path.cwd())]), peers)
    for serve, listener in (
        (daemon.serve, create_local_listener(place)),
        (daemon.serve_peers, remote),
    ):
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    BACKGROUND.append(daemon)
    say(f"{place} {address_of(remote)}")


def keeper() -> None:
    from penstock.data.share_keeper import Keeper, connect
    from penstock.data.share_places import SOCKET

    folder = Path.cwd()

    def work_beside() -> None:
        while (sock := connect(folder)) is None:
            time.sleep(0.01)
        sock.close()
        say(folder / SOCKET)
        work()

    threading.Thread(target=work_beside, daemon=True).start()
    asyncio.run(Keeper(folder).run())


def in_background(main: Callable[[], Awaitable[None]]) -> None:
    def run() -> None:
        asyncio.run(cast("Any", main()))

    threading.Thread(target=run, daemon=True).start()


def standalone() -> None:
    from penstock.data.standalone import LocalDataPlane

    async def main() -> None:
        async with LocalDataPlane(0) as plane:
            say(plane.address)
            await asyncio.Event().wait()

    in_background(main)


def probes() -> None:
    from prometheus_client import CollectorRegistry

    from penstock.kube.probes import ProbeServer

    class Api:
        async def ping(self, resource: str) -> None:
            return

    async def main() -> None:
        async with ProbeServer(
            "127.0.0.1", 0, CollectorRegistry(), cast("Any", Api()), "nodes"
        ) as server:
            say(server.url.removeprefix("http://"))
            await asyncio.Event().wait()

    in_background(main)


KINDS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        consumer,
        parameter_server,
        leader,
        readiness,
        store,
        processes,
        standalone,
        cache,
        keeper,
    )
} | {"probes": probes}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    KINDS[sys.argv[1]]()
    work()
