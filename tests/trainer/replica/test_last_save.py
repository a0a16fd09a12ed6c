"""The last checkpoint of a sharded model: what one process cannot write, all hear of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.job.protocol import Trouble
from penstock.trainer.checkpoint_file import CheckpointError
from penstock.trainer.group.division import Division
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.step_barrier import Listener, connect
from penstock.trainer.replica.last_save import LastSave, through, waiting
from penstock.trainer.replica.layout import Layout
from penstock.trainer.replica.replica import Replica
from penstock.trainer.replica.replica_processes import ReplicaLostError
from tests.patience import patient

FULL = Trouble(reason="CheckpointsNotWritten", message="no room")


def test_who_has_not_spoken_yet_may_still_be_the_one_that_could_not() -> None:
    last = LastSave(3, {"A": "of one of you"})
    assert last.unwritten == {"A": "of one of you"}
    assert last.hear(2, waiting({}))
    assert last.unwritten == {"A": "of one of you"}
    assert last.hear(1, waiting({}))
    assert last.unwritten == {}


def test_what_some_cannot_write_is_known_until_they_have() -> None:
    last = LastSave(3, {})
    last.hear(2, waiting({"A": "second", "B": "b"}))
    last.hear(1, waiting({"A": "first"}))
    assert last.unwritten == {"A": "first", "B": "b"}
    last.hear(1, through(""))
    assert last.unwritten == {"A": "second", "B": "b"}
    assert last.waits
    assert last.lacks(2)
    assert not last.lacks(1)
    last.hear(2, through("hangs"))
    assert (last.waits, last.failure, last.unwritten) == (False, "hangs", {})
    assert not last.hear(1, {"failed": 3}), "no word of it"


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(5)
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Disk:
    """What one process's part waits for."""

    def __init__(self) -> None:
        self.mended = threading.Event()
        self.error: Exception | None = None
        self.told: list[tuple[Trouble, ...]] = []

    def wait(self, waits_on: Callable[[], bool]) -> None:
        while not self.mended.wait(0.01):
            if not waits_on():
                return
        if self.error is not None:
            raise self.error


class Process:
    """One process of a replica group at the end of its training, on a thread."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.disk = Disk()
        self.drained = False

    def _waits_on(self) -> bool:
        full = () if self.disk.mended.is_set() else (FULL,)
        told = self.replica.troubles(full if self.replica.processes.layout.rank else ())
        if not self.disk.told or self.disk.told[-1] != told:
            self.disk.told.append(told)
        return not self.drained

    def end(self) -> None:
        self.replica.wait_for_all(self.disk.wait, self._waits_on)
        self._waits_on()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Two, whose channels are open."""
    found = []
    listener = Listener("127.0.0.1")
    with ThreadPoolExecutor(1) as pool:
        leading = pool.submit(listener.accept, "t", 1, 2, lambda: False, 20)
        channel = connect(listener.address, {"generation": 1, "index": 1}, "t", lambda: False, 20)
        leader = leading.result(20)
    listener.close()
    for rank in range(2):
        replica = Replica(Layout(rank, 2, Division(rank, 2)))
        replica.processes._leader = leader if rank == 0 else None
        replica.processes._channel = channel if rank == 1 else None
        replica._open = True
        replica.membership(None, 1, restore=None)
        found.append(Process(replica))
    yield found
    for process in found:
        process.replica.close(None)


def test_the_first_tells_of_anothers_part_and_waits_for_it(processes: list[Process]) -> None:
    first, second = processes
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(process.end) for process in processes]
        first.disk.mended.set()
        until(lambda: (FULL,) in first.disk.told)
        assert not ends[0].done()
        second.disk.mended.set()
        for end in ends:
            end.result(20)
    assert first.disk.told[-1] == ()


def test_a_part_that_cannot_be_written_is_the_first_ones_error_too(
    processes: list[Process],
) -> None:
    processes[1].disk.error = CheckpointError("part 1: no room")
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(process.end) for process in processes]
        for process in processes:
            process.disk.mended.set()
        for end, kind in zip(ends, (SessionError, CheckpointError), strict=True):
            with pytest.raises(kind, match="part 1: no room"):
                end.result(20)


def test_a_process_that_dies_before_its_part_is_there_is_missed(processes: list[Process]) -> None:
    first, second = processes
    with ThreadPoolExecutor(1) as pool:
        first.disk.mended.set()
        end = pool.submit(first.end)
        second.replica.processes.close()
        with pytest.raises(ReplicaLostError, match=r"process 1 .* its part"):
            end.result(20)


def test_who_is_asked_to_go_waits_for_nobody(processes: list[Process]) -> None:
    first, second = processes
    first.disk.mended.set()
    first.drained = True
    first.end()
    first.replica.close(None)
    second.disk.mended.set()
    second.end()  # its own part is written, whether anybody hears of it or not
