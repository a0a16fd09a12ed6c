"""When servers are halted, moved, saved and restored: from reports and time alone."""

from __future__ import annotations

import pytest

from penstock.parameter_server.control.state import Phase
from penstock.parameter_server.protocol import ServerStage
from tests.parameter_server.control.simulated_job import World


def running(servers: int = 2, workers: int = 2, **more: int) -> World:
    world = World(**more)  # type: ignore[arg-type]  # each test names its own fields
    for rank in range(servers):
        world.add_server(rank)
    for rank in range(workers):
        world.add_worker(rank)
    for _ in range(20):
        world.round()
        world.check()
        if world.trainer.servers.serving:
            return world
    raise AssertionError(world.trainer.servers.summary(world.now))


def test_a_job_runs_to_its_end() -> None:
    world = running()
    world.run()
    world.check_end()
    assert world.trainer.servers.state.restores == 0


def test_without_checkpoints_too() -> None:
    world = World(saves=False)
    world.add_server(0)
    world.add_worker(0)
    world.run()
    world.check_end()
    assert not world.files


def test_servers_come_while_the_training_goes_on() -> None:
    world = running(slots=80)
    world.add_server(2)
    world.add_server(3)
    world.run()
    world.check_end()
    layout = world.trainer.servers.layout
    assert layout is not None
    assert len(layout.servers) == 4
    assert world.trainer.servers.state.restores == 0
    kinds = [each.what for each in world.trainer.servers.state.transitions.kept]
    assert "servers 2 -> 4" in kinds


def test_servers_go_when_they_own_nothing_any_more() -> None:
    world = running(servers=4, slots=200)
    assert world.trainer.servers.consent(3, world.now) is None
    world.set_cap(3)
    for _ in range(40):
        world.round()
        world.check()
        if world.trainer.servers.consent(3, world.now):
            break
    assert world.trainer.servers.consent(3, world.now) is True
    assert world.servers[3].stage is ServerStage.EMPTY
    world.run()
    world.check_end()
    assert world.trainer.servers.state.restores == 0


def test_a_draining_server_hands_over_and_goes() -> None:
    world = running(slots=100)
    world.servers[0].draining = True
    world.run()
    world.check_end()
    assert not world.servers[0].alive
    assert world.trainer.servers.state.restores == 0


def test_a_replacement_takes_over() -> None:
    world = running(slots=100)
    world.add_server(1, incarnation=1)
    world.run()
    world.check_end()
    assert world.servers[1].stage is ServerStage.EMPTY
    assert world.trainer.servers.state.restores == 0


def test_a_dead_server_takes_all_back_to_the_checkpoint() -> None:
    world = running(slots=60)
    while not world.files:
        world.round()
    world.servers[1].alive = False
    world.add_server(1, incarnation=1)
    world.run()
    world.check_end()
    assert world.trainer.servers.state.restores == 1


def test_a_worker_that_does_not_stop_is_waited_for_as_long_as_some_of_its_batches_take() -> None:
    world = running(slots=200, workers=3)
    worker = world.workers[0]
    while worker.working is None:
        worker.exchange()
        worker.step()
    worker.alive = False
    world.add_server(2)
    world.run()
    world.check_end()
    [change] = [
        each for each in world.trainer.servers.state.transitions.kept if "2 -> 3" in each.what
    ]
    assert 4.0 < change.seconds < 7.0, "its batches took a second each"


@pytest.mark.parametrize("with_journal", [True, False])
def test_how_often_it_went_back_is_known_to_the_next_trainer(with_journal: bool) -> None:
    world = running(slots=200)
    while not world.files:
        world.round()
    for count in (1, 2):
        world.servers[-1].alive = False
        world.add_server(1, incarnation=count)
        while world.trainer.servers.state.restores < count or not world.trainer.servers.serving:
            world.round()
        world.restart_trainer(with_journal)
    world.run()
    world.check_end()
    assert world.trainer.servers.state.restores == 2


def test_servers_and_trainer_lost_together_are_a_restore() -> None:
    world = running(slots=200)
    while not world.files or world.begun < max(world.files) + 5:
        world.round()
    for server in world.live_servers():
        server.alive = False
    world.restart_trainer(with_journal=True)
    world.add_server(0, incarnation=1)
    world.run()
    world.check_end()
    assert world.trainer.servers.state.restores == 1


def test_a_dead_server_without_a_checkpoint_takes_all_back_to_the_beginning() -> None:
    world = World(slots=30, saves=False)
    world.add_server(0)
    world.add_server(1)
    world.add_worker(0)
    for _ in range(25):
        world.round()
    assert world.trainer.state.ledger is not None
    assert world.trainer.state.ledger.consumed > 0
    world.servers[0].alive = False
    world.run()
    world.check_end()


def test_a_worker_that_dies_between_two_servers_is_made_up_for() -> None:
    world = running(slots=60)
    worker = world.workers[0]
    while worker.to_push is None or len(worker.to_push) != 1:
        worker.step()
        if worker.to_push is None:
            worker.exchange()
    worker.alive = False
    world.add_server(2)
    world.run()
    world.check_end()
    assert world.trainer.servers.state.restores == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_workers_that_are_all_drained_at_the_end_leave_the_save_to_others(restarts: bool) -> None:
    world = running()
    ledger = world.trainer.state.ledger
    assert ledger is not None
    while not ledger.finished:
        world.round()
    for worker in world.live_workers():
        worker.leaving = True
    while world.live_workers():
        world.round()
    if restarts:
        world.restart_trainer(with_journal=True)
    for _ in range(100):
        world.round()
    assert not world.trainer.servers.at_end
    assert max(world.files) < world.slots
    world.add_worker(0, incarnation=1)
    world.run()
    world.check_end()


def test_servers_without_memory_for_copies_are_saved_while_all_stands_still() -> None:
    world = running(servers=2)
    world.servers[0].has_room = False
    phases = set()
    for _ in range(2000):
        world.round()
        world.check()
        phases.add(world.trainer.servers.state.phase)
        if world.trainer.done():
            break
    world.check_end()
    assert Phase.SAVING in phases
    assert max(world.files) == world.slots
    assert len(world.files) > 1, "not at the end alone"


def test_a_chief_that_dies_while_it_reads_frozen_servers_is_followed_by_another() -> None:
    world = running(servers=2, workers=2)
    world.servers[0].has_room = False
    while world.trainer.servers.state.phase is not Phase.SAVING:
        world.round()
    while not (reading := [worker for worker in world.workers if worker.reading is not None]):
        world.round()
    reading[0].alive = False
    world.run()
    world.check_end()


def test_a_save_of_frozen_servers_that_is_too_late_lets_the_training_go_on_and_leaves_no_file() -> (
    None
):
    world = running(servers=1, workers=1, slots=80)
    world.servers[0].has_room = False
    while world.workers[0].reading is None:
        world.round()
    number = world.workers[0].reading.number
    for _ in range(140):  # the disk hangs
        world.tick(5)
        world.workers[0].exchange()
        world.server_exchange(world.servers[0])
    assert world.servers[0].stage is ServerStage.SERVING
    assert "did not save in 600 s" in world.trainer.servers.save_error
    assert world.servers[0].push(world.servers[0].layout.number, number)  # by another worker
    while world.workers[0].reading is not None:
        world.workers[0].step()
    assert number not in world.files


def test_a_trained_model_is_tried_to_be_saved_for_as_long_as_somebody_may_make_room() -> None:
    world = running(save_every=6)
    full = set(range(1, world.slots + 1))
    for worker in world.workers:
        worker.full_at = full
    while not world.trainer.state.ledger.finished:
        world.round()
    for _ in range(1000):
        world.round(0.5)
    assert not world.trainer.servers.at_end
    full.clear()
    world.run()
    world.check_end()


def test_one_that_cannot_be_saved_ends_the_job_with_what_there_is() -> None:
    world = running(save_every=6)
    for worker in world.workers:
        worker.full_at = set(range(1, world.slots + 1))
    for _ in range(4000):
        world.round(0.5)
        if world.trainer.done():
            break
    assert world.trainer.servers.at_end
    assert not world.files
    assert "No space left" in world.trainer.servers.save_error
