"""Several data workers in one pod: started as there is room, ended together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.crds import environment
from penstock.data import worker_process
from penstock.data.allocator import ALLOCATOR
from penstock.data.serving import siblings
from penstock.data.serving.siblings import SETTLE_SECONDS, Pod, Siblings, starts_another
from tests.data.planes import eventually

MANY = SETTLE_SECONDS + 1


def test_the_first_is_started_whatever_there_is() -> None:
    assert starts_another(Pod((), 0, 0.0), 4)


def test_the_next_one_waits_until_it_is_known_what_one_takes() -> None:
    assert not starts_another(Pod((100,), 1000, SETTLE_SECONDS - 1), 4)
    assert starts_another(Pod((100,), 1000, MANY), 4)


def test_there_are_no_more_than_there_is_room_for() -> None:
    assert not starts_another(Pod((100, 300), 370, MANY), 4), "the largest takes 300"
    assert starts_another(Pod((100, 300), 375, MANY), 4)


@given(st.lists(st.integers(0, 1 << 40), max_size=8), st.integers(0, 1 << 41), st.integers(1, 8))
def test_one_more_never_takes_more_than_is_free(
    resident: list[int], free: int, wanted: int
) -> None:
    if resident and starts_another(Pod(tuple(resident), free, MANY), wanted):
        assert len(resident) < wanted
        assert free >= max(resident)


@contextmanager
def pod(folder: Path, wanted: int, work: str) -> Iterator[int]:
    """The first process of a pod whose data workers write down who they are."""

    def be_one(number: int) -> None:
        left: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: left.append(1))
        (folder / f"{number}-{os.getpid()}").touch()
        until = time.monotonic() + 60
        while not left and time.monotonic() < until:
            if work == "fails" and number:
                raise ValueError("it cannot go on")
            time.sleep(0.01)
        (folder / f"left-{number}").touch()

    pid = os.fork()
    if not pid:
        siblings.SETTLE_SECONDS = 0.0  # type: ignore[misc]  # for this test
        os._exit(Siblings(be_one, lambda: 1 if (folder / "smaller").exists() else wanted).run())
    try:
        yield pid
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def working(folder: Path) -> list[int]:
    return sorted(int(one.name.split("-")[1]) for one in folder.glob("[0-9]*-*"))


def test_all_are_told_to_leave_and_the_pod_ends_well(tmp_path: Path) -> None:
    with pod(tmp_path, 3, "works") as pid:
        eventually(lambda: len(working(tmp_path)) == 3)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(tmp_path.glob("left-*"))) == 3


def test_one_that_is_started_while_all_are_told_to_leave_is_told_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, told = os.fork, os.getppid()

    def slowly() -> int:
        pid = fork()
        if pid and os.getppid() != told:  # in the pod's first process, before it knows of it
            eventually(lambda: working(tmp_path) == [pid])
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    monkeypatch.setattr(os, "fork", slowly)
    with pod(tmp_path, 1, "works") as pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "left-0").exists()


def test_one_that_is_killed_is_not_started_again_while_others_work(tmp_path: Path) -> None:
    with pod(tmp_path, 2, "works") as pid:
        eventually(lambda: len(working(tmp_path)) == 2)
        os.kill(working(tmp_path)[0], signal.SIGKILL)
        time.sleep(5 * siblings.POLL_SECONDS)
        assert len(working(tmp_path)) == 2, "no third was begun"
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(tmp_path.glob("left-*"))) == 1


def test_a_pod_that_is_made_smaller_ends_those_that_it_has_no_core_for(tmp_path: Path) -> None:
    with pod(tmp_path, 3, "works") as pid:
        eventually(lambda: len(working(tmp_path)) == 3)
        (tmp_path / "smaller").touch()
        eventually(lambda: len(list(tmp_path.glob("left-*"))) == 2)
        assert not (tmp_path / "left-0").exists(), "the first tells whether the pod is ready"
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_pod_without_a_limit_has_as_many_as_it_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for cores, expected in ((8.0, 3), (2.5, 2), (0.5, 1)):
        monkeypatch.setattr(siblings, "usable_cores", lambda cores=cores: cores)
        assert siblings.whole_cores(3) == expected


def test_one_that_fails_ends_the_pod_and_says_so(tmp_path: Path) -> None:
    with pod(tmp_path, 2, "fails") as pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert (tmp_path / "left-0").exists()


def test_none_outlives_the_first(tmp_path: Path) -> None:
    with pod(tmp_path, 2, "works") as pid:
        eventually(lambda: len(working(tmp_path)) == 2)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pids = working(tmp_path)
        eventually(lambda: not any(map(_alive, pids)))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("processes", ["65", "1000"])
def test_a_number_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    for variable, value in ALLOCATOR.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv(environment.JOB_TOKEN, "t" * 64)
    monkeypatch.setenv(environment.DATA_PROCESSES, processes)
    monkeypatch.setattr(worker_process, "_load_early", lambda: None)
    with pytest.raises(ValueError, match="PENSTOCK_DATA_PROCESSES"):
        worker_process.run("127.0.0.1:1", share_memory=True, log_format="text")
