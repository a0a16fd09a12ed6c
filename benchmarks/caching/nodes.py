"""Several nodes that divide their files: daemons on loopback, each with programs of its own.

In an epoch each node reads its part of a new order, as a job that is spread over them does. Then
one daemon is killed, and the other nodes read everything. ``hostile`` is a peer that holds the
token and whose answers are not what they say.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.caching.daemons import (
    Daemon,
    Files,
    Reader,
    Storage,
    daemon,
    make_files,
)
from penstock.base.listener import address_of, create_listener
from penstock.data.cache import messages
from penstock.data.cache.client import CacheClient
from penstock.data.cache.homes import home_of
from penstock.data.cache.peers import Peers
from penstock.data.cache.policy import Key
from penstock.data.errors import FrameError, HandshakeError
from penstock.data.transport import frame, handshake

EPOCHS: Final = 3
JOIN_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 0.4
"""That a home is given. The default, 0.05, is for nodes with cores of their own: here all of them
share this machine, and whoever waits for a core is no slow node."""
WARM_FILES, WARM_BYTES = 40, 400
LIE_BYTES: Final = 2_000
WAYS: Final = ("flipped", "short", "long", "checksum", "cut", "another file")


@contextlib.contextmanager
def daemons(
    folders: Sequence[Path], count: int, memory: int, token: Path
) -> Iterator[list[Daemon]]:
    """That many nodes that know each other."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                daemon(
                    folders[0],
                    memory,
                    address=address,
                    more=[
                        *("--listen", address, "--peers", ",".join(addresses)),
                        *("--token-file", str(token), "--answer-seconds", str(ANSWER_SECONDS)),
                        *(f"--paths={folder}" for folder in folders[1:]),
                    ],
                )
            )
            for address in addresses
        ]


def free_ports(count: int) -> list[int]:
    """So many that nobody listens at."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(create_listener("127.0.0.1", 0)) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in found]


def wait_for_each_other(addresses: list[str], token: str) -> None:
    """Until all of them answer a caller. Raises RuntimeError: one does not."""
    deadline = time.monotonic() + JOIN_SECONDS
    for address in addresses:
        host, _, port = address.rpartition(":")
        while True:
            try:
                with socket.create_connection((host, int(port)), timeout=1.0) as sock:
                    handshake.call(sock, token, "benchmark")
                break
            except (OSError, HandshakeError, FrameError):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the cache at {address} does not answer") from None
                time.sleep(0.02)


class Fleet:
    """Nodes, and what has been read from storage by any of them."""

    def __init__(self, files: Files, nodes: list[Daemon]) -> None:
        self.files = files
        self.nodes = nodes
        self.readers = [Reader(CacheClient(one.place), files, Storage()) for one in nodes]
        self._of_the_dead = 0

    @property
    def storage_bytes(self) -> int:
        """Bytes read from storage since the daemons began."""
        own = sum(reader.storage.read_bytes for reader in self.readers)
        return own + self._of_the_dead + sum(node.read_bytes for node in self.nodes)

    def epoch(self, source: np.random.Generator) -> float:
        """Each file once, by one of the nodes; data sets read from storage."""
        before = self.storage_bytes
        order = source.permutation(len(self.files.sizes)).tolist()
        for reader in self.readers:
            reader.longest_seconds = 0.0
        for at, number in enumerate(order):
            self.readers[at % len(self.readers)].read(number)
        return (self.storage_bytes - before) / self.files.total

    def kill(self) -> Daemon:
        """The last of the nodes, with its programs."""
        dead = self.nodes[-1]
        self._of_the_dead += dead.read_bytes
        dead.kill()
        del self.nodes[-1], self.readers[-1]
        return dead


def node_row(files: Files, count: int, share: float, seed: int, folder: Path) -> dict[str, Any]:
    """So many nodes, each with room for a share of the files."""
    token = folder / f"token-{count}"
    token.write_text(secrets.token_hex(32))
    source = np.random.default_rng(seed)
    other = make_files(folder / f"other-{count}", WARM_FILES, seed, WARM_BYTES)
    memory = round(share * files.total) + other.total
    with daemons((files.folder, other.folder), count, memory, token) as nodes:
        addresses = [one.address for one in nodes]
        wait_for_each_other(addresses, token.read_text())
        fleet = Fleet(files, list(nodes))
        warm_up(fleet, other)
        read = [fleet.epoch(source) for _ in range(EPOCHS)]
        remote = sum(one.stat(files.folder)["remote_hits"] for one in fleet.nodes)
        dead = fleet.kill()
        its = sum(
            size
            for number, size in enumerate(files.sizes)
            if home_of(f"{files.folder}/{files.name(number)}", addresses) == dead.address
        )
        after = fleet.epoch(source)
        waited = max(reader.longest_seconds for reader in fleet.readers)
        later = fleet.epoch(source)
    return {
        "nodes": count,
        "cached": share,
        "sum": round(count * share, 2),
        "read": [round(one, 4) for one in read],
        "remote_hits": remote,
        "its_files": round(its / files.total, 4),
        "read_after_kill": round(after, 4),
        "read_later": round(later, 4),
        "longest_wait_ms": round(waited * 1e3, 1),
    }


def warm_up(fleet: Fleet, other: Files) -> None:
    """Let each node read files of another data set: what its program loads for that is read."""
    for reader in fleet.readers:
        for number in range(len(other.sizes)):
            replace(reader, files=other, storage=Storage()).read(number)


class Liar:
    """A peer whose answers are wrong in one of `WAYS` after the other."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._listener = create_listener("127.0.0.1", 0)
        self.address = address_of(self._listener)
        self.told = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._serve, name="liar", daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lie, args=(sock,), name="liar", daemon=True).start()

    def _lie(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(FrameError, HandshakeError, OSError, TimeoutError):
            peer = handshake.answer(sock, self._token, self.address)
            seals = peer.seals
            reader = frame.Reader(sock, seals.receiving if seals else None)
            while True:
                asked = reader.receive(messages.no_body)
                _, _, size, *_ = messages.fields(asked.kind, asked.header)
                with self._lock:
                    way = WAYS[self.told % len(WAYS)]
                    self.told += 1
                self._answer(sock, seals.sending if seals else None, way, size)
                if way == "cut":
                    return

    @staticmethod
    def _answer(sock: socket.socket, seal: Any, way: str, size: int) -> None:
        true = bytes(size)
        wrong = bytes([1]) + true[1:]
        header, body = {
            "flipped": ([size, zlib.crc32(true)], wrong),
            "short": ([size, zlib.crc32(true[:-1])], true[:-1]),
            "long": ([size, zlib.crc32(true + b"x")], true + b"x"),
            "checksum": ([size, zlib.crc32(true) ^ 1], true),
            "cut": ([size, zlib.crc32(true)], true),
            "another file": ([size + 1, zlib.crc32(true + b"x")], true + b"x"),
        }[way]
        if way != "cut":
            frame.send(sock, messages.CONTENT, header, (body,), seal=seal)
            return
        here, there = socket.socketpair()
        with here, there:
            sent = frame.send(here, messages.CONTENT, header, (body,), seal=seal)
            sock.sendall(there.recv(sent)[: size // 2])


def lie_row(answers: int) -> dict[str, Any]:
    """What the real client of other nodes makes of so many wrong answers."""
    token = secrets.token_hex(32)
    liar = Liar(token)
    peers = Peers("127.0.0.1:1", [liar.address], token)
    accepted = asked = 0
    try:
        while liar.told < answers and asked < 10 * answers:
            asked += 1
            key = Key(1, asked, LIE_BYTES, 1)
            content, _ = peers.fetch("/data", f"{asked}.bin", key, 1, lambda: None)
            accepted += content is not None
    finally:
        peers.end()
        liar.close()
    return {"wrong_answers": liar.told, "accepted": accepted, "ways": ", ".join(WAYS)}
