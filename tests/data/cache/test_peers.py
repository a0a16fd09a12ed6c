"""Caches of several nodes: each file is read once in all, and nobody is believed or waited for."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.listener import address_of, create_listener
from penstock.data.cache import messages, peers
from penstock.data.cache.client import CacheClient
from penstock.data.cache.homes import home_of
from penstock.data.cache.peers import Peers
from penstock.data.cache.policy import RANGE_BYTES, Key
from penstock.data.cache.program.ranges import Wanted
from penstock.data.errors import DataError
from penstock.data.transport import frame, handshake
from tests.data.cache.daemons import Daemon, daemon, files, place, read, until

TOKEN = "of these caches"


@contextlib.contextmanager
def node_group(folder: Path, count: int, *, answer_seconds: float = 10) -> Iterator[list[Daemon]]:
    """Daemons of several nodes, as far as they can tell, that know each other."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    (token := folder.parent / "token").write_text(TOKEN)
    with contextlib.ExitStack() as stack:
        group = []
        for address in addresses:
            more = ["--listen", address, "--peers", ",".join(addresses)]
            more += ["--token-file", str(token), "--answer-seconds", str(answer_seconds)]
            group.append(stack.enter_context(daemon(place(), folder, more=more)))
        yield group


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "data"


def epoch(group: list[Daemon], folder: Path, made: dict[str, bytes]) -> tuple[int, int]:
    """Every node reads every file; how many reads came to storage, and from other nodes."""
    before = [one.stat(folder) for one in group]
    for one in group:
        client = CacheClient(one.place, answer_seconds=30)  # what it leaves out nobody counts
        for name, content in made.items():
            assert read(client, folder, name) in (None, content)
        client.send_notes()
    seen = len(made)
    for one, said in zip(group, before, strict=True):
        one.wait_for(folder, seen=said["seen"] + seen)
    after = [one.stat(folder) for one in group]
    return tuple(  # type: ignore[return-value] - of two
        sum(now[name] - then[name] for now, then in zip(after, before, strict=True))
        for name in ("misses", "remote_hits")
    )


@pytest.mark.slow
def test_each_file_is_read_once_in_all_and_a_dead_node_costs_its_own(folder: Path) -> None:
    made = files(folder, 60)
    with node_group(folder, 3) as group:
        # Those that came up first may have found others absent, who are back within a second.
        until(lambda: epoch(group, folder, made)[0] == 0)
        held = [one.stat(folder)["held_bytes"] // 1000 for one in group]
        assert sum(held) >= 60
        assert min(held) > 0
        assert epoch(group, folder, made)[1] > 0
        lost = group.pop()
        lost.process.kill()
        lost.process.wait()
        began = time.monotonic()
        misses, _ = epoch(group, folder, made)
        assert misses <= held[2]
        assert time.monotonic() - began < 60
        assert epoch(group, folder, made)[0] == 0


@pytest.mark.slow
def test_ranges_of_a_large_file_have_homes_of_their_own(folder: Path) -> None:
    """Three ranges, and room for one on each of two nodes."""
    content = random.Random(5).randbytes(3 * RANGE_BYTES)
    folder.mkdir()
    (folder / "large").write_bytes(content)
    with node_group(folder, 2) as group, (folder / "large").open("rb") as file:
        clients = [CacheClient(one.place, answer_seconds=30) for one in group]

        def epoch_of_ranges() -> None:
            for client in clients:  # what was kept before they had found each other goes
                client.command(messages.DROP, None)
            for client in 2 * clients:  # a home that has just read it has it now
                for number in (1, 2, 3):
                    at = (number - 1) * RANGE_BYTES
                    wanted = Wanted(number, at, RANGE_BYTES, little=False, first=True)
                    found = client.fetch(file.fileno(), str(folder), "large", wanted)
                    if found.content is not None:
                        assert found.start == at
                        assert bytes(found.content) == content[at : at + RANGE_BYTES]

        def had_from_others() -> bool:
            epoch_of_ranges()
            return any(one.stat(folder)["remote_hits"] for one in group)

        until(had_from_others)
        assert max(one.stat(folder)["held_bytes"] for one in group) == RANGE_BYTES
        assert sum(one.stat(folder)["refused_answers"] for one in group) == 0


@pytest.mark.slow
def test_a_home_that_hangs_is_left_out_after_a_few_files(folder: Path) -> None:
    made = files(folder, 60)
    with node_group(folder, 2, answer_seconds=0.2) as group:
        epoch(group, folder, made)
        group[1].process.send_signal(signal.SIGSTOP)
        try:
            client = CacheClient(group[0].place)
            for name, content in made.items():
                assert read(client, folder, name) in (None, content)
            until(lambda: all(read(client, folder, n) == c for n, c in made.items()))
        finally:
            group[1].process.send_signal(signal.SIGCONT)


def test_a_name_that_is_another_file_here_is_not_asked_for(folder: Path) -> None:
    made = files(folder, 8)
    with node_group(folder, 2) as group:
        until(lambda: epoch(group, folder, made)[0] == 0)
        own = folder.parent / "own.bin"
        own.write_bytes(b"x" * 1000)
        for name in made:
            status = (folder / name).stat()
            os.utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))
            descriptor = os.open(own, os.O_RDONLY)
            answer = CacheClient(group[0].place).fetch(descriptor, str(folder), name)
            os.close(descriptor)
            assert answer.content is None or bytes(answer.content) == b"x" * 1000


class Peer:
    """A daemon of another node that proves who it is, and then answers as a test wants."""

    def __init__(self, answer: Callable[[socket.socket, list[Any], Any], None]) -> None:
        self._listener = create_listener("127.0.0.1", 0)
        self.address = address_of(self._listener)
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                with contextlib.suppress(DataError, OSError), contextlib.closing(sock):
                    known = handshake.answer(sock, TOKEN, "evil")
                    assert known.seals is not None
                    reader = frame.Reader(sock, known.seals.receiving)
                    while True:
                        asked = reader.receive(messages.no_body)
                        self._answer(sock, asked.header, known.seals.sending)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def not_as_they_say(rng: random.Random, content: bytes) -> Callable[..., bool]:
    """Answers that are cut, or have another byte, length or checksum; whether it was whole."""

    def answer(sock: socket.socket, asked: list[Any], seal: Any) -> bool:
        size, crc, body = len(content), zlib.crc32(content), bytearray(content)
        match rng.randrange(6):
            case 0:
                body[rng.randrange(size)] ^= 1 << rng.randrange(8)
            case 1:
                crc ^= 1
            case 2:
                del body[rng.randrange(size) :]
            case 3:
                body += b"x"
            case 4:
                size, body = size - 1, body[:-1]
                crc = zlib.crc32(body)
            case 5:
                near, far = socket.socketpair()
                frame.send(near, messages.CONTENT, [size, crc], [bytes(body)], seal=seal)
                whole = far.recv(1 << 16)
                near.close()
                far.close()
                sock.sendall(whole[: rng.randrange(1, len(whole))])
                sock.shutdown(socket.SHUT_RDWR)
                return False
        frame.send(sock, messages.CONTENT, [size, crc], [bytes(body)], seal=seal)
        return True

    return answer


@pytest.mark.slow
def test_of_a_thousand_corrupt_and_cut_answers_none_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And those are counted that are wrong, not those that break off."""
    monkeypatch.setattr(peers, "CONNECT_SECONDS", 10)
    content, told = random.Random(1).randbytes(500), [0, 0]
    lie = not_as_they_say(random.Random(2), content)

    def answer(*asked: Any) -> None:
        told[lie(*asked)] += 1

    evil = Peer(answer)
    group = Peers("127.0.0.1:1", [evil.address], TOKEN, answer_seconds=10)
    refused, number = 0, 0
    try:
        while sum(told) < 1000:
            number += 1
            key = Key(1, number, 500, 0)
            found, remote = group.fetch("/data", f"{number}.bin", key, 7, lambda: None)
            assert found is None
            refused += remote.refused
        until(lambda: refused == told[True])  # the last one is counted when it has been sent
        assert told[False] > 100
    finally:
        group.end()
        evil.close()


class Slow:
    """Answers that come so slowly, byte by byte, that each wait for some of it is short."""

    def __init__(self) -> None:
        self.ending = threading.Event()

    def __call__(self, sock: socket.socket, asked: list[Any], seal: Any) -> None:
        near, far = socket.socketpair()
        frame.send(near, messages.CONTENT, [500, 0], [bytes(500)], seal=seal)
        whole = far.recv(1 << 16)
        near.close()
        far.close()
        for byte in whole:
            sock.sendall(bytes([byte]))
            if self.ending.wait(0.02):
                return


def home_at(group: Peers, address: str, length: int = 500) -> tuple[str, Key]:
    """A file whose home is there."""
    for number in range(1000):
        if home_of(f"/data/{number}", group.live) == address:
            return str(number), Key(1, number, length, 7)
    raise AssertionError


def test_a_peer_that_trickles_is_not_waited_for_and_has_said_nothing_wrong() -> None:
    slow = Slow()
    peer = Peer(slow)
    group = Peers("127.0.0.1:1", [peer.address], TOKEN, answer_seconds=0.5)
    try:
        file, key = home_at(group, peer.address)
        found, remote = group.fetch("/data", file, key, 7, lambda: None)
        assert found is None
        assert remote.refused == 0
        assert not remote.mine
        assert not slow.ending.is_set(), "it had not said half of it"
    finally:
        slow.ending.set()
        group.end()
        peer.close()


@pytest.mark.parametrize("length", [500, 8 << 20])
def test_what_may_take_long_is_announced_before_it_is_waited_for(length: int) -> None:
    """A connection that has to be made first, and many bytes; on a connection, few are not."""
    announced = threading.Event()
    content = bytes(length)

    def answer(sock: socket.socket, asked: list[Any], seal: Any) -> None:
        if announced.wait(30):
            frame.send(sock, messages.CONTENT, [length, zlib.crc32(content)], [content], seal=seal)

    peer = Peer(answer)
    group = Peers("127.0.0.1:1", [peer.address], TOKEN, answer_seconds=60)
    try:
        file, key = home_at(group, peer.address, length)
        found, remote = group.fetch("/data", file, key, 7, announced.set)
        assert found == content
        assert not remote.read, "nobody read storage for it"
        again: list[bool] = []
        group._answer_seconds = 0.1  # as it may be in a group that is fast
        group.fetch("/data", file, key, 7, lambda: again.append(True))
        assert bool(again) == (length > 500)
    finally:
        group.end()
        peer.close()


def test_a_name_that_cannot_be_looked_up_for_a_while_dissolves_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: list[set[str] | None] = [{"127.0.0.1:1", "127.0.0.1:2"}]
    monkeypatch.setattr(peers, "resolve", lambda _: known[0])
    monkeypatch.setattr(Peers, "_keep", lambda _: None)
    group = Peers("127.0.0.1:9", ["caches:1"], TOKEN)
    assert set(group.live) == {"127.0.0.1:9", "127.0.0.1:1", "127.0.0.1:2"}
    known[0] = None
    group._look()
    assert set(group.live) == {"127.0.0.1:9", "127.0.0.1:1", "127.0.0.1:2"}
    known[0] = {"127.0.0.1:2"}
    group._look()
    assert set(group.live) == {"127.0.0.1:9", "127.0.0.1:2"}
    group.end()


def test_a_name_that_is_none_is_not_known() -> None:
    assert peers.resolve("nobody.invalid:1") is None
    assert peers.resolve("127.0.0.1:1") == {"127.0.0.1:1"}


@pytest.mark.parametrize(("size", "number"), [(500, 0), ((2 << 20) + 500, 3)])
def test_a_right_answer_is_taken(size: int, number: int) -> None:
    """Of a whole file, or of the last range of one."""
    content = b"right" * 100

    def answer(sock: socket.socket, asked: list[Any], seal: Any) -> None:
        assert asked == ["/data", asked[1], size, 7, number, False]
        frame.send(sock, messages.READING, [], seal=seal)
        crc = zlib.crc32(content)
        frame.send(sock, messages.CONTENT, [500, crc], [content], seal=seal)

    good = Peer(answer)
    group = Peers("127.0.0.1:1", [good.address], TOKEN, answer_seconds=30)
    reading: list[bool] = []
    try:
        for each in range(100):
            item = f"/data/{each}#{number}" if number else f"/data/{each}"
            if home_of(item, group.live) == good.address:
                key = Key(1, each, size, 7, number)
                found, remote = group.fetch(
                    "/data", str(each), key, 7, lambda: reading.append(True)
                )
                assert found == content
                assert remote.read
    finally:
        group.end()
        good.close()
    assert len(reading) > 20


def test_who_holds_another_token_takes_no_part() -> None:
    stranger = Peer(lambda *_: None)
    group = Peers("127.0.0.1:1", [stranger.address], "another token")
    try:
        for number in range(100):
            found, remote = group.fetch("/data", str(number), Key(1, number, 1, 0), 7, lambda: None)
            assert found is None
            assert remote.mine
        assert group.live == ["127.0.0.1:1"]
    finally:
        group.end()
        stranger.close()
