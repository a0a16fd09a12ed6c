"""The end of a process waits for the threads of its process groups, and no longer than it must."""

from __future__ import annotations

import ctypes
import threading
import time
from types import SimpleNamespace
from typing import Self

import pytest

from penstock.trainer import gloo_threads
from tests.patience import patient

PR_SET_NAME = 15


class GlooThread:
    """A thread of that name, which holds the lock until it is told not to."""

    def __init__(self) -> None:
        self.rests = threading.Event()
        self.ends = threading.Event()
        self._named = threading.Event()
        self.ran_on = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._named.wait(patient(5))
        return self

    def __exit__(self, *_: object) -> None:
        self.rests.set()
        self.ends.set()
        self._thread.join()

    def _run(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_gloo_runloop", 0, 0, 0)
        self._named.set()
        while not self.rests.is_set():
            pass
        self.ran_on = time.monotonic()
        self.ends.wait()


def test_nothing_is_waited_for_where_there_is_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_threads, "_THREAD", "no_such_thread")  # other tests had groups here
    monkeypatch.setattr(gloo_threads.time, "sleep", lambda _: pytest.fail("it waits"))
    gloo_threads._wait()
    gloo_threads._wait_at_exit()


def test_a_group_is_destroyed_once_the_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_threads.atexit, "register", lambda _: None)
    seen: list[tuple[float, object, object]] = []
    of_package = SimpleNamespace(
        destroy_process_group=lambda group, *, told=None: seen.append((gloo.ran_on, group, told)),
        distributed_c10d=SimpleNamespace(destroy_process_group=None),
    )
    gloo_threads.outlive_gloo_threads(of_package)
    with GlooThread() as gloo:
        threading.Timer(0.1, gloo.rests.set).start()
        of_package.destroy_process_group("world", told="all")
    [(rested, *passed_on)] = seen
    assert rested > 0
    assert passed_on == ["world", "all"]
    assert of_package.distributed_c10d.destroy_process_group is of_package.destroy_process_group


def test_the_end_waits_until_the_threads_sleep() -> None:
    with GlooThread() as gloo:
        threading.Timer(0.1, gloo.rests.set).start()
        gloo_threads._wait()
        assert 0 < gloo.ran_on < time.monotonic()


def test_a_thread_that_never_sleeps_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gloo_threads, "_MAX_SECONDS", 0.05)
    with GlooThread() as gloo:
        gloo_threads._wait()
        assert not gloo.rests.is_set()
