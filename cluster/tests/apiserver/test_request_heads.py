"""The head of a request is bounded, whoever sends it and however it comes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from penstock_cluster.apiserver.transport import HEAD_LIMIT_BYTES
from penstock_cluster.testing import RunningCluster

START = b"GET /version HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /version HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
MOST_BYTES = 1024 * HEAD_LIMIT_BYTES


def send_until_closed(cluster: RunningCluster, start: bytes, piece: bytes) -> bytes:
    """Send a piece again and again; what is answered until the connection is closed."""
    address = urlsplit(cluster.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), 10) as sock:
        sock.sendall(start)
        answers: list[bytes] = []
        reader = threading.Thread(target=lambda: answers.extend(_received(sock)))
        reader.start()
        sent = 0
        with contextlib.suppress(OSError):
            while reader.is_alive() and sent < MOST_BYTES and b"431" not in b"".join(answers):
                sock.sendall(piece)
                sent += len(piece)
        assert sent < MOST_BYTES, f"{sent} bytes were taken"
        reader.join(10)
        assert not reader.is_alive()
        return b"".join(answers)


def _received(sock: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while got := sock.recv(65536):
            yield got


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (START, b"x-one: two\r\n" * 100),
        (START + b"x-endless: ", b"a" * 1000),
        (START, b"a" * 1000),
        (b"GET /version?", b"a" * 1000),
    ],
    ids=["lines", "line", "name", "address"],
)
def test_an_endless_head_is_refused(
    shared_cluster: RunningCluster, start: bytes, piece: bytes
) -> None:
    answer = send_until_closed(shared_cluster, start, piece)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"connection: close" in answer


@pytest.mark.parametrize("piece", [b"x-one: two\r\n" * 100, b"a" * 1000])
def test_so_is_an_endless_trailer(shared_cluster: RunningCluster, piece: bytes) -> None:
    assert b" 431 " in send_until_closed(shared_cluster, CHUNKED, piece)


def test_a_head_within_the_bound_is_none(shared_cluster: RunningCluster) -> None:
    headers = {f"X-{number}": "a" * 1000 for number in range(60)}
    assert shared_cluster.request("GET", "/version", headers=headers).status == 200


def test_one_beyond_it_that_comes_in_one_piece(shared_cluster: RunningCluster) -> None:
    headers = {f"X-{number}": "a" * 1000 for number in range(66)}
    assert shared_cluster.request("GET", "/version", headers=headers).status == 431


def test_a_large_body_is_no_head(shared_cluster: RunningCluster) -> None:
    document = {"metadata": {"name": "large"}, "data": {"a": "x" * 900_000}}
    shared_cluster.create("configmaps", document, "default")
