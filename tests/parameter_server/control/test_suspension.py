"""A job that is suspended: what was trained is on disk before anybody goes, then all go at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from penstock.parameter_server.protocol import ServerStage, WorkerPhase
from penstock.parameter_server.worker.checkpoint import ModelFiles
from penstock.trainer.control.coordinator import JobFacts
from tests.parameter_server.control.simulated_job import World
from tests.parameter_server.control.test_moves import running
from tests.parameter_server.worker import test_exchange as real


def until(world: World, look: Callable[[], object], rounds: int = 100) -> float:
    """Everybody acts until something is so; the seconds that it took."""
    began = world.now
    for _ in range(rounds):
        if look():
            return world.now - began
        world.round()
        world.check()
    raise AssertionError(world.trainer.servers.summary(world.now))


def train(world: World, batches: int) -> None:
    until(world, lambda: world.trainer.state.ledger is not None and world.begun >= batches)


def leave(world: World) -> float:
    """Suspend as the controller does: workers are asked to go, then the servers."""
    world.suspend(True)
    for worker in world.live_workers():
        worker.leaving = True
    seconds = until(world, lambda: not world.live_workers())
    for server in world.live_servers():
        server.draining = True
    return seconds + until(world, lambda: not world.live_servers())


def come_back(world: World, with_journal: bool = True) -> None:
    world.suspend(False)
    world.restart_trainer(with_journal)
    for rank in range(2):
        world.add_server(rank, incarnation=1)
        world.add_worker(rank, incarnation=1)


@pytest.mark.parametrize(("with_journal", "again"), [(True, 0), (False, 8)])
def test_nothing_is_done_twice_when_it_resumes(with_journal: bool, again: int) -> None:
    """But where the ledger is gone: workers had given back slots in front of what others had."""
    world = running(slots=80, save_every=1000)
    train(world, 30)
    assert leave(world) < 5.0
    ledger = world.trainer.state.ledger
    assert ledger is not None
    assert max(world.files) == ledger.consumed == world.begun >= 30
    come_back(world, with_journal)
    world.run()
    world.check_end()
    assert 80 <= world.begun <= 80 + again
    assert world.trainer.servers.state.restores == 0


def test_it_stands_still_for_as_long_as_it_is_suspended() -> None:
    world = running(slots=80, save_every=1000)
    train(world, 30)
    world.suspend(True)
    until(world, lambda: world.files and not world.trainer.servers.state.checkpoints.writing)
    begun = world.begun
    for _ in range(20):
        world.round()
    assert world.begun == begun == max(world.files)
    assert world.trainer.servers.message(world.now) == "the job is suspended"
    assert all(server.stage is ServerStage.SERVING for server in world.live_servers())
    world.suspend(False)
    world.run()
    world.check_end()
    assert world.begun == 80
    assert world.trainer.servers.state.restores == 0


def test_without_a_folder_for_checkpoints_nobody_waits() -> None:
    world = World(slots=80, saves=False)
    world.add_server(0)
    world.add_worker(0)
    until(world, lambda: world.trainer.servers.serving)
    train(world, 10)
    assert leave(world) < 2.0


def test_a_worker_that_leaves_a_job_that_goes_on_is_told_to_go() -> None:
    world = running(slots=80, save_every=1000)
    train(world, 10)
    for worker in world.live_workers():
        worker.leaving = True
    until(world, lambda: not world.live_workers(), rounds=2)
    assert not world.files


def test_what_nobody_can_complete_is_left_out() -> None:
    world = running(slots=80, save_every=12)
    until(world, lambda: world.files)
    worker = world.workers[0]
    while worker.to_push is None or len(worker.to_push) != 1:
        worker.step()
        if worker.to_push is None:
            worker.exchange()
    worker.alive = False
    world.trainer.servers.end_worker(0, 0)
    assert leave(world) < 15.0, "its lease ends after a while, then servers differ"
    come_back(world)
    world.run()
    world.check_end()


def test_a_job_that_is_suspended_before_it_begins() -> None:
    world = World(slots=20)
    world.suspend(True)
    world.add_server(0)
    world.add_worker(0)
    for _ in range(10):
        world.round()
    assert world.trainer.servers.layout is None
    assert leave(world) < 2.0
    assert world.workers[0].phase is WorkerPhase.CLOSED
    come_back(world)
    world.run()
    world.check_end()


def test_a_real_chief_stays_for_the_checkpoint_and_real_servers_go_at_once(tmp_path: Path) -> None:
    with real.running() as job:
        job.start_servers(2)
        asked = threading.Event()
        workers = [job.worker(rank, folder=tmp_path, leaving=asked.is_set) for rank in range(3)]
        for worker in [*workers, *workers]:
            slot = worker.next_slot()
            assert slot is not None
            assert worker.begin(slot) is not None
            worker.push(slot, [], -np.ones(2, np.float32))
        job.coordinator.learn(JobFacts(lease_seconds=20.0, suspended=True))
        asked.set()
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker: worker.close(), workers))
        newest = ModelFiles(tmp_path, real.model(), real.DATA).newest()
        assert newest is not None
        assert newest.slots == 6
        for server in job.servers:
            server.drain()
        assert [server.wait(5.0) for server in job.servers] == [0, 0]
