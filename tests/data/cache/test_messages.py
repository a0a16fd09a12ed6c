"""What a cache and its clients say to each other, and what is none of it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.listener import create_local_listener
from penstock.data.cache import messages
from penstock.data.cache.client import CacheClient
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.node.daemon import CacheDaemon
from penstock.data.cache.policy import RANGE_BYTES
from penstock.data.errors import FrameError
from penstock.data.transport import frame
from tests.data.cache.daemons import ask, place, read, until

VERSION = messages.CACHE_PROTOCOL_VERSION


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (messages.ASK, [VERSION, "/data", "a", 0]),
        (messages.ASK, [VERSION, ["/data"], "a", 0, False]),
        (messages.ASK, [VERSION, "/data", 7, 0, False]),
        (messages.ASK, [VERSION, "/data", "a", True, False]),
        (messages.ASK, [VERSION, "/data", "a", 0.5, False]),
        (messages.FETCH, [["/data"], "a", 1, 1, 0, False]),
        (messages.FETCH, ["/data", "a", 1, 1, None, False]),
        (messages.ENTER, [VERSION, "/data", {}]),
        (messages.DROP, [VERSION, ["/data"]]),
        (messages.NOTE, [VERSION, [], "job"]),
        (messages.READING, [VERSION]),
        (messages.STAT, {}),
        (99, []),
    ],
)
def test_a_message_with_other_fields_is_none(kind: int, header: Any) -> None:
    with pytest.raises(FrameError, match=f"kind {kind}"):
        messages.fields(kind, header)


@pytest.mark.parametrize("name", ["a", "ä/b", "bad\udcff.jpg"])
def test_any_name_of_a_file_is_sent(name: str) -> None:
    assert messages.read_name(messages.written(name)) == name


@contextlib.contextmanager
def daemon_here(contents: Contents) -> Iterator[str]:
    """A daemon in this process; its threads that fail are seen."""
    where = place()
    listener = create_local_listener(where[1:])
    one = CacheDaemon(contents)
    thread = threading.Thread(target=one.serve, args=(listener,))
    thread.start()
    try:
        yield where
    finally:
        one.end()
        thread.join()
        listener.close()


def connected(where: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect("\0" + where[1:])
    frame.set_timeouts(sock, 30)
    return sock


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (messages.READING, []),
        (messages.GRANTED, [VERSION]),
        (messages.CONTENT, [VERSION, None]),
        (messages.DROP, [VERSION, ["/data"]]),
        (messages.ENTER, [VERSION, "/data", []]),
    ],
)
def test_who_says_something_else_is_hung_up_on(kind: int, header: Any, tmp_path: Path) -> None:
    contents = Contents(1 << 20, [str(tmp_path)])
    with daemon_here(contents) as where, contextlib.closing(connected(where)) as sock:
        frame.send(sock, kind, header)
        with pytest.raises(FrameError, match=r"closed|went away"):
            frame.receive(sock, messages.no_body)


def test_a_thread_that_cannot_be_started_costs_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    start, failed = threading.Thread.start, threading.Event()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "penstock-cache" and not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    contents = Contents(1 << 20, [str(tmp_path)])
    with daemon_here(contents) as where:
        with contextlib.closing(connected(where)) as sock, pytest.raises((FrameError, OSError)):
            frame.receive(sock, messages.no_body)
        assert failed.is_set()
        assert read(CacheClient(where, answer_seconds=30), tmp_path, "file") == b"content"
    assert "can't start new thread" in caplog.text


def test_a_listener_that_gives_no_connections_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = CacheDaemon(Contents(1 << 20, [str(tmp_path)]))
    listener = create_local_listener(place()[1:])
    listener.close()
    thread = threading.Thread(target=one.serve, args=(listener,))
    thread.start()
    until(lambda: "programs cannot connect" in caplog.text)
    assert thread.is_alive()
    one.end()
    thread.join()


@pytest.mark.parametrize("number", [-1, 2, 1 << 40])
def test_a_range_that_the_file_does_not_have_is_none_of_its_bytes(
    number: int, tmp_path: Path
) -> None:
    path, file = str(tmp_path), tmp_path / "file"
    file.write_bytes(bytes(RANGE_BYTES))
    contents = Contents(1 << 20, [path])
    with (
        daemon_here(contents) as where,
        contextlib.closing(connected(where)) as sock,
        file.open("rb") as opened,
    ):
        header = [VERSION, path, "file", number, False]
        frame.send(sock, messages.ASK, header, (), (opened.fileno(),))
        answer = frame.receive(sock, messages.no_body)
        assert (answer.kind, answer.header[1]) == (messages.OWN, True)
    assert contents.report()[path]["data_set_bytes"] == 0


def test_a_file_whose_name_is_no_text_is_kept_as_any_other(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff.bin")
    (tmp_path / name).write_bytes(b"content")
    contents = Contents(1 << 20, [str(tmp_path)])
    with daemon_here(contents) as where:
        client = CacheClient(where, answer_seconds=30)
        for _ in range(2):
            assert read(client, tmp_path, name) == b"content"
        assert not client.away
    assert contents.report()[str(tmp_path)]["misses"] == 1


def test_a_daemon_may_announce_a_wait_twice(tmp_path: Path) -> None:
    """For another node, and for its own storage, if the first was of no use."""
    (tmp_path / "file").write_bytes(b"content")
    where = place()
    listener = create_local_listener(where[1:])

    def serve() -> None:
        sock, _ = listener.accept()
        with contextlib.closing(sock):
            frame.receive(sock, messages.no_body)
            frame.send(sock, messages.REFUSED, ["the folder is none of mine"])
            asked = frame.receive(sock, messages.no_body)
            os.close(asked.descriptors[0])
            for _ in range(2):
                frame.send(sock, messages.READING, [])
            frame.send(sock, messages.CONTENT, [7, None], [b"content"])

    thread = threading.Thread(target=serve)
    thread.start()
    client = CacheClient(where, answer_seconds=30)
    try:
        content = ask(client, tmp_path, "file").content
        assert content is not None
        assert bytes(content) == b"content"
        assert not client.away
    finally:
        client._connections.close()
        thread.join()
        listener.close()
