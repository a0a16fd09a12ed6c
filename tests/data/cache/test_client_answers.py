"""What a program makes of a daemon that answers wrong: it reads its files, and that is all."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.data.cache import interception, launching, messages
from penstock.data.cache.client import CacheClient, CacheError
from penstock.data.errors import FrameError
from penstock.data.transport import frame

Answer = Callable[[socket.socket, frame.Frame], None]
CONTENT = bytes(range(250)) * 20


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Somebody at a cache's socket, which has that name."""
    place = f"@penstock-test-{os.urandom(8).hex()}"
    threads, lines = [], []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{place[1:]}")
        listener.listen()

        def serve(sock: socket.socket) -> None:
            frame.set_timeouts(sock, 10.0)
            with sock:
                try:
                    while True:
                        asked = frame.receive(sock, messages.no_body)
                        for descriptor in asked.descriptors:
                            os.close(descriptor)
                        answer(sock, asked)
                except (FrameError, TimeoutError, OSError):
                    return  # the other end has heard enough

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                lines.append(sock)
                threads.append(threading.Thread(target=serve, args=(sock,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield place
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(20)
            for sock in lines:
                with contextlib.suppress(OSError):  # closed by its thread
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join(20)
                assert not thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(CONTENT)
    return tmp_path


def reads(place: str, folder: Path) -> None:
    """A program reads a file twice, and gets what is in it."""
    interception.install(place, [str(folder)])
    try:
        for _ in range(2):
            with (folder / "file").open("rb") as file:
                assert file.read() == CONTENT
    finally:
        interception.uninstall()


def granting(header: Any, *sizes: int) -> Answer:
    """Grants memory of these sizes, and has no file."""

    def answer(sock: socket.socket, asked: frame.Frame) -> None:
        if asked.kind != messages.ENTER:
            frame.send(sock, messages.OWN, [False, False])
            return
        given = [os.memfd_create("test") for _ in sizes]
        for descriptor, size in zip(given, sizes, strict=True):
            os.truncate(descriptor, size)
            os.pwrite(descriptor, b"PNSCACHE"[:size], 0)
        frame.send(sock, messages.GRANTED, header, (), given)
        for descriptor in given:
            os.close(descriptor)

    return answer


def memory_files() -> list[str]:
    """Descriptors of a daemon's memory that this process has open."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found.append(str(one.readlink()))
    return [one for one in found if "memfd:test" in one]


@pytest.mark.parametrize("header", [None, 5, [], [None], ["x"], [1.5], {}, [1, 2]])
def test_a_grant_that_is_none_is_no_error_of_open(folder: Path, header: Any) -> None:
    with answering(granting(header, 1 << 16)) as place:
        reads(place, folder)
    assert memory_files() == []


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (64,), (65,), (1 << 16, 1 << 16)])
def test_a_grant_of_other_memory_is_no_error_of_open(folder: Path, sizes: tuple[int, ...]) -> None:
    with answering(granting([1 << 20], *sizes)) as place:
        reads(place, folder)
    assert memory_files() == []


@pytest.mark.parametrize("announces", [False, True])
def test_no_memory_is_made_for_more_than_the_file_has(
    folder: Path, announces: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(sock: socket.socket, asked: frame.Frame) -> None:
        if asked.kind == messages.ENTER:
            frame.send(sock, messages.REFUSED, ["no"])
            return
        if announces:
            frame.send(sock, messages.READING, [])
        head = frame._PRELUDE.pack(frame.MAGIC, messages.CONTENT, 5, frame.MAX_BODY_BYTES)
        sock.sendall(head + bytes(1 << 20))

    with answering(answer) as place:
        reads(place, folder)
    assert f"{frame.MAX_BODY_BYTES} bytes where 5000 were asked for" in caplog.text


@pytest.mark.parametrize("header", [None, 5, [1], "x", {"a": 5}])
def test_a_report_that_is_none_is_told(header: Any) -> None:
    def answer(sock: socket.socket, asked: frame.Frame) -> None:
        frame.send(sock, messages.STAT, header)

    with answering(answer) as place:
        assert not launching.serves(place, ["/data"])
        with pytest.raises(CacheError, match="refuses"):
            CacheClient(place).command(messages.STAT)


@pytest.mark.parametrize("header", [None, [], [1, 2, 3], ["x"] * 4])
def test_a_place_that_is_none_is_no_result(folder: Path, header: Any) -> None:
    def answer(sock: socket.socket, asked: frame.Frame) -> None:
        frame.send(sock, messages.PLACE, header)

    with answering(answer) as place, (folder / "file").open("rb") as file:
        assert CacheClient(place).exchange(messages.DECODED, [], file.fileno()) is None
