"""Any interleaving of reports, deaths, restarts and changes of what is wanted ends well."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.parameter_server.protocol import WorkerPhase
from tests.parameter_server.control.simulated_job import World


class Chaos:
    """Moves of a world, by name; each picks its victim by a number."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rank = max((server.id.rank for server in world.servers), default=-1) + 1

    def server_reports(self, pick: int, lost: bool = False) -> None:
        if servers := self.world.live_servers():
            self.world.server_exchange(servers[pick % len(servers)], lose_reply=lost)

    def server_works(self, pick: int) -> None:
        if servers := self.world.live_servers():
            servers[pick % len(servers)].work()

    def old_report_arrives(self, pick: int) -> None:
        if servers := self.world.live_servers():
            self.world.late_report(servers[pick % len(servers)])

    def worker_reports(self, pick: int, lost: bool = False) -> None:
        if workers := self.world.live_workers():
            workers[pick % len(workers)].exchange(lose_reply=lost)

    def worker_steps(self, pick: int) -> None:
        if workers := self.world.live_workers():
            workers[pick % len(workers)].step()

    def server_dies(self, pick: int) -> None:
        servers = self.world.live_servers()
        if servers:
            servers[pick % len(servers)].alive = False

    def server_restarts(self, pick: int) -> None:
        """A process of the same pod begins anew, or one of its next incarnation."""
        if self.world.servers:
            old = self.world.servers[pick % len(self.world.servers)]
            newest = max(s.id.incarnation for s in self.world.servers if s.id.rank == old.id.rank)
            if old.id.incarnation == newest:
                for server in self.world.servers:  # a pod has one process at a time
                    if (server.id.rank, server.id.incarnation) == (old.id.rank, newest):
                        server.alive = False
                self.world.add_server(old.id.rank, newest + pick % 2)

    def server_is_replaced(self, pick: int) -> None:
        if servers := self.world.live_servers():
            old = servers[pick % len(servers)].id
            newest = max(s.id.incarnation for s in self.world.servers if s.id.rank == old.rank)
            self.world.add_server(old.rank, newest + 1)

    def server_drains(self, pick: int) -> None:
        if servers := self.world.live_servers():
            servers[pick % len(servers)].draining = True

    def servers_come(self, pick: int) -> None:
        for _ in range(1 + pick % 2):
            if len(self.world.live_servers()) < 5:
                self.world.add_server(self.rank)
                self.rank += 1

    def memory_becomes_short(self, pick: int) -> None:
        """A server has none for a copy any more, or has some again."""
        if servers := self.world.live_servers():
            server = servers[pick % len(servers)]
            server.has_room = not server.has_room

    def fewer_are_wanted(self, pick: int) -> None:
        self.world.set_cap(1 + pick % 4)

    def as_many_as_there_are(self, pick: int) -> None:
        self.world.set_cap(None)

    def worker_dies(self, pick: int) -> None:
        workers = self.world.live_workers()
        if len(workers) > 1:
            workers[pick % len(workers)].alive = False

    def worker_restarts(self, pick: int) -> None:
        open_ones = [w for w in self.world.workers if w.phase is not WorkerPhase.CLOSED]
        if open_ones:
            old = open_ones[pick % len(open_ones)].member
            newest = max(
                w.member.incarnation for w in self.world.workers if w.member.rank == old.rank
            )
            for worker in self.world.workers:
                if worker.member.rank == old.rank:
                    worker.alive = False
            self.world.add_worker(old.rank, newest + pick % 2)

    def worker_leaves(self, pick: int) -> None:
        if workers := self.world.live_workers():
            workers[pick % len(workers)].leaving = True

    def job_is_suspended(self, pick: int) -> None:
        """For a while, as a rule with everybody asked to go."""
        self.world.suspend(pick % 4 > 0)
        if pick % 4 > 1:
            for worker in self.world.live_workers():
                worker.leaving = True
        if pick % 4 > 2 and not self.world.live_workers():
            for server in self.world.live_servers():
                server.draining = True

    def trainer_restarts(self, pick: int) -> None:
        self.world.restart_trainer(with_journal=pick % 3 > 0)

    def time_passes(self, pick: int) -> None:
        self.world.tick((0.1, 0.5, 2.0, 6.0, 16.0, 40.0)[pick % 6])

    def everybody_acts(self, pick: int) -> None:
        self.world.round()

    def calm(self) -> None:
        """Nothing fails any more, and there is at least one of each."""
        self.world.set_cap(None)
        self.world.suspend(False)
        if not any(not server.draining for server in self.world.live_servers()):
            self.world.add_server(self.rank)
            self.rank += 1
        going = all(worker.leaving for worker in self.world.live_workers())
        if going and not self.world.trainer.done():
            rank = 1 + max(worker.member.rank for worker in self.world.workers)
            self.world.add_worker(rank)


CALM = [
    "server_reports",
    "server_works",
    "worker_reports",
    "worker_steps",
    "time_passes",
    "everybody_acts",
]
ROUGH = [
    "old_report_arrives",
    "server_dies",
    "server_restarts",
    "server_is_replaced",
    "server_drains",
    "servers_come",
    "memory_becomes_short",
    "fewer_are_wanted",
    "as_many_as_there_are",
    "worker_dies",
    "worker_restarts",
    "trainer_restarts",
    "worker_leaves",
    "job_is_suspended",
]


def begin(saves: bool, servers: int, workers: int) -> Chaos:
    world = World(slots=24, save_every=5, saves=saves)
    for rank in range(servers):
        world.add_server(rank)
    for rank in range(workers):
        world.add_worker(rank)
    return Chaos(world)


@pytest.mark.parametrize("seed", range(60))
def test_random_lives(seed: int) -> None:
    dice = random.Random(seed)
    chaos = begin(seed % 4 != 0, dice.randint(1, 3), dice.randint(1, 3))
    for _ in range(dice.randint(50, 250)):
        move = dice.choice(CALM if dice.random() < 0.93 else ROUGH)
        pick = dice.randrange(1 << 16)
        if move.endswith("_reports") and dice.random() < 0.1:
            getattr(chaos, move)(pick, True)
        else:
            getattr(chaos, move)(pick)
        chaos.world.check()
    chaos.calm()
    chaos.world.run()
    chaos.world.check_end()


class JobMachine(RuleBasedStateMachine):
    """The same moves, chosen and shrunk by hypothesis."""

    @initialize(saves=st.booleans(), servers=st.integers(1, 3), workers=st.integers(1, 3))
    def begins(self, saves: bool, servers: int, workers: int) -> None:
        self.chaos = begin(saves, servers, workers)

    @rule(move=st.sampled_from(CALM), pick=st.integers(0, 63))
    def calmly(self, move: str, pick: int) -> None:
        getattr(self.chaos, move)(pick)

    @rule(move=st.sampled_from(ROUGH), pick=st.integers(0, 63))
    def roughly(self, move: str, pick: int) -> None:
        getattr(self.chaos, move)(pick)

    @rule(pick=st.integers(0, 63))
    def a_reply_is_lost(self, pick: int) -> None:
        self.chaos.server_reports(pick, lost=True)
        self.chaos.worker_reports(pick, lost=True)

    @rule(rounds=st.integers(1, 20))
    def goes_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.chaos.world.round()
            self.chaos.world.check()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "chaos"):
            self.chaos.world.check()

    def teardown(self) -> None:
        if hasattr(self, "chaos"):
            self.chaos.calm()
            self.chaos.world.run()
            self.chaos.world.check_end()


TestJobMachine = JobMachine.TestCase
TestJobMachine.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
