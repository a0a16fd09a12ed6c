"""A data worker's pod is ready when it makes batches, and at the latest some seconds after that."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.base import ports
from penstock.data.serving import readiness
from tests.data.planes import eventually

ADDRESS = f"127.{os.getpid() % 200 + 20}.7.3"  # of this test alone


def takes_connections() -> bool:
    try:
        with socket.create_connection((ADDRESS, ports.DATA_WORKER), 1) as sock:
            return sock.recv(1) == b""
    except OSError:
        return False


def test_it_is_ready_with_its_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_POD_IP", ADDRESS)
    worker: Any = SimpleNamespace(figures=SimpleNamespace(batches=0))
    readiness.announce(cast("Any", worker))
    assert not takes_connections()
    worker.figures.batches = 1
    eventually(takes_connections)
    assert takes_connections(), "again and again"


def test_one_that_nobody_asks_is_ready_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LATEST_SECONDS", 0.0)
    heard: list[tuple[str, int]] = []

    def create_listener(host: str, port: int) -> socket.socket:
        heard.append((host, port))
        raise OSError("enough")

    monkeypatch.setattr(readiness, "create_listener", create_listener)
    readiness._announce(cast("Any", SimpleNamespace(figures=SimpleNamespace(batches=0))), ADDRESS)
    assert heard == [(ADDRESS, ports.DATA_WORKER)]
