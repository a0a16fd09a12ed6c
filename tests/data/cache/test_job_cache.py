"""The cache that a job's spec asks for, as its processes are told of it."""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.enums import CacheScope
from penstock.crds import environment as names
from penstock.data.cache import interception, job_cache, launching
from penstock.data.cache.locations import cache_socket, checked_path, parse_memory
from penstock.data.dispatcher import Dispatcher
from penstock.data.protocol import (
    CacheOptions,
    ConsumerReply,
    InputOptions,
    WorkerReply,
    WorkerReport,
    decode,
    encode,
)
from penstock.data.reporting import Reporter
from tests.data import planes
from tests.data.cache.daemons import daemon, files, place

PLAIN = builtins.open


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(job_cache, "_used", [])
    yield
    interception.uninstall()
    assert builtins.open is PLAIN


def test_data_workers_are_told_of_the_cache_and_others_of_nothing_new() -> None:
    wanted = CacheOptions(memory_bytes=1 << 30, paths=("/data",))
    report = WorkerReport(name="w")
    told = Dispatcher("d", lambda: InputOptions(cache=wanted)).worker(report, 0.0)
    assert decode(WorkerReply, encode(told)).cache == wanted
    plain = Dispatcher("d").worker(report, 0.0)
    assert "cache" not in plain.model_dump()
    assert "cache" not in ConsumerReply(dispatcher="d", workers=0).model_dump()["options"]


def test_the_nodes_cache_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    made = files(tmp_path / "data", 3)
    with daemon(place(), tmp_path / "data") as node:
        options = CacheOptions(memory_bytes=1, paths=(str(tmp_path / "data"),))
        for _ in range(2):
            job_cache.use(options, {names.CACHE_SOCKET: node.place})
        for name, content in made.items():
            assert (tmp_path / "data" / name).read_bytes() == content
        node.wait_for(tmp_path / "data", misses=3)


def test_a_pod_of_its_own_cache_starts_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = files(tmp_path / "data", 3)
    started = []

    def start(*arguments: object) -> None:
        # arg-type: it passes on what it gets.
        started.append(launch(*arguments))  # type: ignore[arg-type]

    launch = launching.start_daemon
    monkeypatch.setattr(launching, "start_daemon", start)
    environ = {names.POD_NAME: place(), names.JOB_TOKEN: "secret"}
    options = CacheOptions(
        memory_bytes=1 << 20,
        paths=(str(tmp_path / "data"),),
        scope=CacheScope.POD,
    )
    try:
        for _ in range(2):
            job_cache.use(options, environ)
            monkeypatch.setattr(job_cache, "_used", [])  # as another process of the pod
            interception.uninstall()
        job_cache.use(options, environ)
        for name, content in made.items():
            assert (tmp_path / "data" / name).read_bytes() == content
        assert len(started) == 1
    finally:
        for process in started:
            if process is not None:
                launching.end(process)


def test_a_pod_without_memory_for_it_has_no_cache_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A training process would be killed for what its cache takes."""
    started: list[object] = []
    monkeypatch.setattr(launching, "start_daemon", lambda *given: started.append(given))
    options = CacheOptions(memory_bytes=1, paths=("/data",), scope=CacheScope.POD)
    environ = {names.POD_NAME: place()}
    job_cache.use(options, environ, has_memory=False)
    assert not started
    assert interception.installed() is None
    job_cache.use(options, environ)
    assert len(started) == 1


def test_a_pods_own_cache_that_has_ended_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there, started = [False], [0]

    def start(*_: object) -> None:
        started[0] += 1
        there[0] = True

    monkeypatch.setattr(launching, "start_daemon", start)
    monkeypatch.setattr(launching, "listens", lambda _: there[0])
    options = CacheOptions(memory_bytes=1, paths=("/data",), scope=CacheScope.POD)
    for _ in range(3):
        job_cache.use(options, {names.POD_NAME: "pod"})
    assert started == [1]
    there[0] = False
    job_cache.use(options, {names.POD_NAME: "pod"})
    assert started == [1], "not over and over"
    monkeypatch.setattr(job_cache, "AGAIN_SECONDS", -1)
    for _ in range(3):
        job_cache.use(options, {names.POD_NAME: "pod"})
    assert started == [2]


def test_a_program_knows_its_options_whatever_its_cache_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, ending = threading.Event(), threading.Event()
    given: list[dict[str, object]] = []

    def use(*_: object, **how: object) -> None:
        given.append(how)
        asked.set()
        ending.wait(60)

    monkeypatch.setattr(job_cache, "use", use)
    said = InputOptions(skip_bad=True)
    reply = ConsumerReply(dispatcher="d", workers=0, options=said)
    monkeypatch.setattr(Reporter, "report", lambda *_: reply)
    monkeypatch.setattr("penstock.data.consuming.consumer.OPTIONS_SECONDS", 0.1)
    with planes.consumer(dispatcher="127.0.0.1:9") as consumer:
        try:
            assert asked.wait(60)
            assert consumer.options() == said
            assert given == [{"has_memory": False}]
        finally:
            ending.set()


def test_nothing_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    job_cache.use(None)
    assert interception.installed() is None
    with caplog.at_level(logging.WARNING):
        job_cache.use(CacheOptions(memory_bytes=1, paths=("data",)))
    assert interception.installed() is None
    assert "data: must begin with /" in caplog.text


def test_sockets_and_sizes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_socket({names.CACHE_SOCKET: "@there"}) == "@there"
    one, other = {names.POD_NAME: "a"}, {names.POD_NAME: "b"}
    assert job_cache.pod_socket(one) == job_cache.pod_socket(dict(one))
    assert job_cache.pod_socket(one) != job_cache.pod_socket(other)
    assert parse_memory("4GiB") == parse_memory("4Gi") == 4 << 30
    assert checked_path("/data//x/") == "/data/x"
    with pytest.raises(ValueError, match="above 0"):
        parse_memory("0")
