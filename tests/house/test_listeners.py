"""Listeners are made in one place, which knows both families of addresses, and nowhere else."""

from __future__ import annotations

import pytest

from tests.house.listeners import OURS, made_in, made_in_rooms

PLACES = {
    "base/penstock/base/listener.py": "the one place",
    "base/penstock/base/http/server.py": "the one HTTP server over it",
    "kube/penstock/kube/probes.py": "serves its listener with aiohttp, which is there anyway",
    "runtime/penstock/data/share_keeper.py": "in a folder of its owner's alone; the files of "
    "`create_file_listener` any user may connect to",
    "runtime/penstock/trainer/group/collective.py": "PyTorch's own listeners",
    "cluster/penstock_cluster/apiserver/server.py": "a distribution of its own",
    "cluster/penstock_cluster/kubelet/hook/sitecustomize.py": "gives the sockets of others "
    "the address of their pod",
    "cluster/penstock_cluster/kubelet/network/addresses.py": "takes names and numbers; nobody "
    "connects to them",
    "cluster/penstock_cluster/kubelet/network/hosts.py": "an address that takes no connections",
    "cluster/penstock_cluster/kubelet/network/relay.py": "at a loopback address of the cluster",
}
"""Where something else than `create_listener` may be called, and why."""


def test_listeners_are_made_in_one_place() -> None:
    others = [
        str(made) for made in made_in_rooms() if made.call not in OURS and made.path not in PLACES
    ]
    assert others == [], "use penstock.base.listener"


def test_each_exception_is_one() -> None:
    assert {made.path for made in made_in_rooms() if made.call not in OURS} == set(PLACES)


@pytest.mark.parametrize(
    "source",
    [
        "import socket\nsocket.create_server(('', 0))",
        "from socket import create_server\ncreate_server(('', 0))",
        "import socket as s\nx = s.socket()\nx.bind(('', 0))",
        "import socket\nclass A:\n    def f(self):\n        self._it.listen(3)",
        "import asyncio\nasync def f(l):\n    await asyncio.start_server(f, '', 0)",
        "async def f(loop):\n    await loop.create_server(f, '', 0)",
        "import uvicorn\nuvicorn.run(None)",
        "from uvicorn import Config as C, Server\nServer(None)",
        "from http.server import ThreadingHTTPServer\nThreadingHTTPServer(('', 0), None)",
        "import multiprocessing.connection\nmultiprocessing.connection.Listener()",
        "from aiohttp import web\nweb.TCPSite(None)",
        "import torch.distributed as dist\ndist.TCPStore('', 0)",
    ],
)
def test_one_is_found(source: str) -> None:
    assert len(list(made_in(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from sqlalchemy import event\nevent.listen(1, 'connect', print)",
        "def f(queue):\n    queue.bind(1)",
        "import socket\nsocket.create_connection(('', 1))",
    ],
)
def test_what_is_none_is_not_found(source: str) -> None:
    assert list(made_in(source)) == []
