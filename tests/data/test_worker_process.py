"""A data worker as a process, before it does anything."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.crds import environment
from penstock.data import worker_process
from penstock.data.allocator import ALLOCATOR


def test_pytorch_is_loaded_before_anybody_knows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that comes while another thread loads a package may meet half of it."""
    done: list[str] = []

    def note(what: str) -> Any:
        return lambda *_, **__: done.append(what)

    root = logging.getLogger("penstock")
    monkeypatch.setattr(root, "handlers", [])  # it makes its own
    monkeypatch.setattr(root, "level", root.level)
    for variable, value in ALLOCATOR.items():
        monkeypatch.setenv(variable, value)  # or the process begins again
    monkeypatch.setenv(environment.JOB_TOKEN, "t" * 64)
    monkeypatch.setattr(worker_process.importlib, "import_module", note("load"))
    monkeypatch.setattr(worker_process, "DataWorker", note("make"))
    monkeypatch.setattr(worker_process, "announce", note("announce"))
    monkeypatch.setattr(worker_process, "work", note("work"))
    worker_process.run("127.0.0.1:1", share_memory=True, log_format="text")
    assert done == ["load", "make", "announce", "work"]


def test_one_without_pytorch_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(worker_process.importlib, "import_module", missing)
    worker_process._load_early()
