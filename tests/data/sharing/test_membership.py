"""A program looks for its group's keeper: whatever is there instead is told, and not waited for."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.data import share_membership
from penstock.data.share_keeper import MAX_LINE
from penstock.data.share_membership import GroupError, join
from penstock.data.share_places import SOCKET, STARTING


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(share_membership, "START_SECONDS", 1.0)
    monkeypatch.setattr(share_membership, "HELLO_SECONDS", 0.5)
    monkeypatch.setattr(share_membership, "start", lambda folder: None)
    monkeypatch.chdir(tmp_path)
    return Path()  # the name of a socket has to be short


@contextmanager
def keeper(folder: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Somebody at a keeper's socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    sock.settimeout(5.0)
                    with contextlib.suppress(OSError):  # the other end has heard enough
                        serve(sock)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    "answer",
    [b"5", b"[]", b"{}", b'"x"', b'{"environ": 5}', b'{"environ": {"A": 5}}', b"[" * 9999, b"\xff"],
)
def test_an_answer_of_another_release_is_told(folder: Path, answer: bytes) -> None:
    with (
        keeper(folder, lambda sock: sock.sendall(answer + b"\n")),
        pytest.raises(GroupError, match="as no keeper of this release does: end the group's"),
    ):
        join(folder, {})


def test_what_it_refuses_is_told(folder: Path) -> None:
    with (
        keeper(folder, lambda sock: sock.sendall(b'{"error": "256 programs"}\n')),
        pytest.raises(GroupError, match="--share: 256 programs"),
    ):
        join(folder, {})


def test_one_that_never_ends_its_answer_is_not_listened_to(folder: Path) -> None:
    sent = []

    def serve(sock: socket.socket) -> None:
        while True:
            sent.append(sock.send(bytes(1 << 16)))

    with keeper(folder, serve), pytest.raises(GroupError, match="as no keeper"):
        join(folder, {})
    assert sum(sent) < 64 * MAX_LINE


def test_one_that_answers_by_the_byte_is_not_waited_for(folder: Path) -> None:
    def serve(sock: socket.socket) -> None:
        while True:
            sock.sendall(b" ")
            time.sleep(0.05)

    with keeper(folder, serve), pytest.raises(GroupError, match="have not started in 1 s"):
        join(folder, {})


def gone(folder: Path) -> None:
    (folder / STARTING).symlink_to("nowhere/at/all")


DAMAGE = {"a folder": (lambda folder: (folder / STARTING).mkdir()), "nowhere": gone}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_place_that_is_none_is_told(folder: Path, how: str) -> None:
    DAMAGE[how](folder)
    with pytest.raises(GroupError, match=f"--share: .*{STARTING}"):
        join(folder, {})


def test_a_fifo_in_the_place_of_a_lock_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / STARTING)
    with pytest.raises(GroupError, match="have not started in 1 s"):
        join(folder, {})
