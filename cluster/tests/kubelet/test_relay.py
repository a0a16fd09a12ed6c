"""The relay delays and loses nothing: all comes in order, and ends come through."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from penstock_cluster.kubelet.network.relay import PLACE, Relay

HERE = "127.0.0.1"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(7):
        writer.write(content)
        await writer.drain()
    writer.close()


async def _connect(relay: Relay, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As a process of a pod does."""
    sock = socket.socket()
    sock.bind((HERE, 0))
    (relay.folder / f"{HERE}:{sock.getsockname()[1]}").write_text(f"{HERE} {port}")
    sock.setblocking(False)
    host, at = (relay.folder / PLACE).read_text().split()
    await asyncio.get_running_loop().sock_connect(sock, (host, int(at)))
    return await asyncio.open_connection(sock=sock)


async def _scenario(folder: Path) -> None:
    server = await asyncio.start_server(_echo, HERE, 0)
    port = server.sockets[0].getsockname()[1]
    relay = Relay(folder, HERE)
    await relay.open()
    try:
        relay.delay(HERE, 0.01, 0.01)
        reader, writer = await _connect(relay, port)
        sent = bytes(range(256)) * 2000
        writer.write(sent)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 30) == sent
        writer.close()
        server.close()
        reader, writer = await _connect(relay, port)
        assert await asyncio.wait_for(reader.read(), 30) == b"", "nobody is there"
        writer.close()
    finally:
        await relay.aclose()
        server.close()


def test_what_is_delayed_comes_whole_in_order_and_to_its_end(tmp_path: Path) -> None:
    asyncio.run(_scenario(tmp_path / "relay"))
    assert not list((tmp_path / "relay").iterdir()), (
        "notes are taken away, and its place at its end"
    )


def test_the_place_of_a_relay_that_is_gone_counts_no_more(tmp_path: Path) -> None:
    (tmp_path / PLACE).write_text(f"{HERE} 9")
    Relay(tmp_path, HERE)
    assert not (tmp_path / PLACE).exists()
