"""The cache of a node as real processes: what it gives, to whom, and that nobody needs it."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.data.cache import messages
from penstock.data.cache.client import CacheClient, CacheError
from penstock.data.cache.connections import Connections
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.node.process import DaemonOptions, remarks
from penstock.data.cache.policy import Key, Verdict, key_of
from penstock.data.cache.timeouts import ANSWER_SECONDS
from penstock.data.transport import frame
from tests.data.cache.daemons import CODE, Daemon, ask, daemon, files, place, read
from tests.data.planes import eventually
from tests.patience import patient


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "data"


@pytest.fixture
def running(folder: Path) -> Iterator[Daemon]:
    folder.mkdir()
    with daemon(place(), folder, memory=10_000) as one:
        yield one


def test_misses_are_one_minus_x_from_the_second_epoch_on(running: Daemon, folder: Path) -> None:
    made = files(folder, 20)
    client, order = CacheClient(running.place), random.Random(3)
    for epoch in range(4):
        names = sorted(made)
        order.shuffle(names)
        found = 0
        for name in names:
            content = read(client, folder, name)
            assert content in (None, made[name])
            found += content is not None
        assert found == 10
        client.send_notes()
        running.wait_for(folder, seen=20 * (epoch + 1), misses=20 + 10 * epoch, held_bytes=10_000)


def test_two_clients_share_what_one_has_read(running: Daemon, folder: Path) -> None:
    made = files(folder, 5)
    first, second = CacheClient(running.place), CacheClient(running.place)
    for client in (first, second):
        for name, content in made.items():
            assert read(client, folder, name) == content
        client.send_notes()
    running.wait_for(folder, misses=5, hits=5, hit_bytes=5000, miss_bytes=5000)


def test_a_client_that_is_dropped_lets_go_of_all_that_it_had(running: Daemon, folder: Path) -> None:
    made = files(folder, 1)
    descriptors = psutil.Process().num_fds()
    mapped = Path("/proc/self/maps").read_text().count("memfd:penstock-cache")
    client = CacheClient(running.place)
    for _ in range(2):
        assert read(client, folder, "0.bin") == made["0.bin"]
    assert Path("/proc/self/maps").read_text().count("memfd:penstock-cache") > mapped
    del client
    assert Path("/proc/self/maps").read_text().count("memfd:penstock-cache") == mapped
    assert psutil.Process().num_fds() == descriptors


def test_a_changed_file_is_never_given_as_it_was(running: Daemon, folder: Path) -> None:
    files(folder, 1)
    client = CacheClient(running.place)
    for number in range(30):
        content = f"version {number:10}".encode()
        (folder / "0.bin").write_bytes(content)
        os.utime(folder / "0.bin", ns=(number, number))
        assert read(client, folder, "0.bin") == content
        assert read(client, folder, "0.bin") == content
    assert running.stat(folder)["held_bytes"] == len(content)


def test_what_is_larger_than_the_cache_is_left_to_the_program(
    running: Daemon, folder: Path
) -> None:
    files(folder, 1, size=10_001)
    assert ask(CacheClient(running.place), folder, "0.bin").content is None
    running.wait_for(folder, misses=1, miss_bytes=10_001, held_bytes=0)


@pytest.mark.parametrize(
    ("memory", "path", "said"),
    [
        (4096, "", ["--memory: 4096 bytes: files that are larger"]),
        (1 << 20, "", []),
        (1 << 20, "gone", ["gone: no such folder"]),
        (1 << 20, "file", ["file: no such folder"]),
    ],
)
def test_what_is_hardly_meant_is_told_at_the_start(
    tmp_path: Path, memory: int, path: str, said: list[str]
) -> None:
    (tmp_path / "file").touch()
    found = remarks(DaemonOptions(place(), memory, (str(tmp_path / path),)))
    assert len(found) == len(said)
    assert all(each in one for each, one in zip(said, found, strict=True))


def test_only_who_can_read_a_file_is_given_it(running: Daemon, folder: Path) -> None:
    files(folder, 1)
    client = CacheClient(running.place)
    assert read(client, folder, "0.bin") is not None
    for flags in (os.O_PATH, os.O_WRONLY):
        other = CacheClient(running.place)
        other._mapped[str(folder)] = None  # as where the folder cannot be read
        descriptor = os.open(folder / "0.bin", flags)
        try:
            assert other.fetch(descriptor, str(folder), "0.bin").content is None
        finally:
            os.close(descriptor)


def test_files_that_are_not_for_all_are_given_one_by_one(running: Daemon, folder: Path) -> None:
    made = files(folder, 3)
    (folder / "0.bin").chmod(0o600)
    (folder / "closed").mkdir(mode=0o700)
    inner = files(folder / "closed", 1)
    client = CacheClient(running.place)
    for name, content in {**made, "closed/0.bin": inner["0.bin"]}.items():
        assert read(client, folder, name) == content
        assert read(client, folder, name) == content
    mapped = client._mapped[str(folder)]
    assert mapped is not None
    keys = {name: key_of((folder / name).stat()) for name in (*made, "closed/0.bin")}
    assert {name for name, key in keys.items() if mapped.read(key) is not None} == {
        "1.bin",
        "2.bin",
    }


def test_a_folder_that_is_another_one_is_not_granted(running: Daemon, tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    sock = Connections(running.place, ANSWER_SECONDS).connect()
    try:
        header = [messages.CACHE_PROTOCOL_VERSION, str(tmp_path / "data"), None]
        frame.send(sock, messages.ENTER, header, (), (other,))
        answer = frame.receive(sock, messages.no_body)
        assert answer.kind == messages.REFUSED
        assert not answer.descriptors
    finally:
        sock.close()
        os.close(other)


def test_what_clients_have_mapped_they_cannot_write_to(running: Daemon, folder: Path) -> None:
    files(folder, 1)
    client = CacheClient(running.place)
    assert read(client, folder, "0.bin") is not None
    for part in (None, 0):
        granted = client._enter(str(folder), part)
        assert granted is not None
        shared, _ = granted
        with pytest.raises(PermissionError):
            os.pwrite(shared, b"x", 0)
        again = os.open(f"/proc/self/fd/{shared}", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.pwrite(again, b"x", 0)
        os.close(again)
        os.close(shared)
    assert client._enter(str(folder), 1) is None, "there is no such part"


def test_a_program_goes_on_when_the_daemon_is_killed(
    running: Daemon, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = files(folder, 4)
    client = CacheClient(running.place)
    assert read(client, folder, "0.bin") == made["0.bin"]
    running.process.kill()
    running.process.wait()
    with caplog.at_level(logging.WARNING):
        for name in made:
            assert read(client, folder, name) in (None, made[name])
    assert len(caplog.records) == 1
    assert client.away


def test_a_daemon_that_hangs_costs_a_moment_and_not_one_for_each_file(
    running: Daemon, folder: Path
) -> None:
    made = files(folder, 50)
    client = CacheClient(running.place)
    read(client, folder, "0.bin")
    running.process.send_signal(signal.SIGSTOP)
    stopped = psutil.Process(running.process.pid)
    eventually(lambda: stopped.status() == psutil.STATUS_STOPPED)
    began = time.monotonic()
    assert [read(client, folder, name) for name in made if name != "0.bin"] == [None] * 49
    assert client.away
    assert time.monotonic() - began < 30, "49 time-outs and more"
    running.process.send_signal(signal.SIGCONT)


@pytest.mark.slow
def test_another_daemon_takes_over_what_a_killed_one_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    made, where = files(tmp_path / "data", 2), str(tmp_path / "cache.sock")
    with daemon(where, tmp_path / "data") as first:
        client = CacheClient(where)
        read(client, tmp_path / "data", "0.bin")
        refused = subprocess.run(
            [
                sys.executable,
                "-c",
                CODE,
                "run",
                "--socket",
                where,
                "--memory",
                "1",
                "--paths",
                "/a",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert refused.returncode != 0
        assert "another cache has it" in refused.stderr
        first.process.kill()
        first.process.wait()
        assert Path(where).exists()
    with daemon(where, tmp_path / "data") as second:
        assert read(CacheClient(where), tmp_path / "data", "1.bin") == made["1.bin"]
        second.process.terminate()
        assert second.process.wait(20) == 0
    assert not Path(where).exists()


def test_clients_that_are_killed_leave_the_daemon_as_it_was(running: Daemon, folder: Path) -> None:
    made = files(folder, 10)
    code = textwrap.dedent(f"""
        import os, sys
        from pathlib import Path
        from penstock.data.cache.client import CacheClient
        client = CacheClient({running.place!r})
        print("began", flush=True)
        while True:
            for name in {sorted(made)!r}:
                descriptor = os.open(Path({str(folder)!r}, name), os.O_RDONLY)
                client.fetch(descriptor, {str(folder)!r}, name)
                os.close(descriptor)
    """)
    for _ in range(3):
        program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert program.stdout is not None
        program.stdout.readline()
        program.kill()
        program.wait()
        program.stdout.close()
    client = CacheClient(running.place, answer_seconds=patient(1))
    for name, content in made.items():
        assert read(client, folder, name) == content


def test_what_is_dropped_is_let_go_by_those_who_had_it_mapped(
    running: Daemon, folder: Path
) -> None:
    made = files(folder, 3)
    client = CacheClient(running.place)
    for _ in range(2):
        for name, content in made.items():
            assert read(client, folder, name) == content
    before = client._mapped[str(folder)]
    assert running.stat(folder)["held_bytes"] == 3000
    CacheClient(running.place).command(messages.DROP, None)
    assert running.stat(folder)["held_bytes"] == 0
    assert read(client, folder, "0.bin") == made["0.bin"]
    assert client._mapped[str(folder)] is not before
    running.wait_for(folder, misses=4, held_bytes=1000)


def test_another_path_or_version_is_refused_with_a_reason(running: Daemon, folder: Path) -> None:
    client = CacheClient(running.place)
    with pytest.raises(CacheError, match="not among the paths"):
        client.command(messages.DROP, "/elsewhere")
    with pytest.raises(CacheError, match="no cache at @nobody"):
        CacheClient("@nobody").command(messages.STAT)


def test_a_path_nobody_reads_for_ten_minutes_gives_its_room_to_others(tmp_path: Path) -> None:
    now = [0.0]
    contents = Contents(10, ("/a", "/b"), clock=lambda: now[0])
    old = tmp_path / "old"
    old.write_bytes(b"12345678")
    key = key_of(old.stat())
    verdict, held = contents.meet(key, "/a", True)
    assert verdict is Verdict.ADMIT
    assert held is not None
    descriptor = os.open(old, os.O_RDONLY)
    assert contents.read_in(held, descriptor)
    os.close(descriptor)
    contents.release(held)
    other = Key(1, 1, 5, 0)
    now[0] = 599
    assert contents.meet(other, "/b", True)[0] is Verdict.PASS
    now[0] = 601
    assert contents.meet(other, "/b", True)[0] is Verdict.ADMIT
    assert contents.find(key, "/a") is None
