"""Recordings of random lives of a job: every event at its trainer, and what was answered.

They hold a change of the decisions' shape to equal answers: `play` gives the same events to the
present code, and `test_recorded_lives` compares. Where an answer is meant to change:

    python -m tests.parameter_server.control.recorded_lives

makes them anew; the difference of the file says in which answers, and belongs to that change.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from penstock.data.ledger import LedgerError
from penstock.data.ledger.journal import begin as begin_journal
from penstock.job.protocol import AgentReport, ProcessState
from penstock.parameter_server.control.events import PodsKnown, RanksCapped, ServersExpected
from penstock.parameter_server.control.records.servers import ServerPod
from penstock.parameter_server.protocol import (
    ServerReply,
    ServerReport,
    WorkerReply,
    WorkerReport,
)
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from penstock.trainer.control.queries import has_said_farewell
from penstock.trainer.journal import restore
from tests.parameter_server.control.simulated_job import LEASE_SECONDS, World
from tests.parameter_server.control.test_random_lives import CALM, ROUGH, Chaos
from tests.recordings import logged, pack, unpack

FILE = Path(__file__).with_name("recorded_lives.json.xz")
LIVES = range(24)
MORE = [
    "pods_are_known",
    "agents_report",
    "memory_is_limited",
    "server_has_trouble",
    "worker_fails",
    "saving_is_switched",
    "dead_server_reports",
]

Json = dict[str, Any]


class Trainer:
    """A job's trainer by its calls, each of them plain data; `play` makes one call."""

    def __init__(self) -> None:
        self.lives = 0
        self.suspended = False
        self.coordinator = self._begin()

    def _begin(self) -> Coordinator:
        self.lives += 1
        self.told = 0  # transitions
        made = Coordinator(self._facts(), identity=f"t{self.lives}", fence_floor=self.lives << 24)
        made.learn(self._facts())
        return made

    def _facts(self) -> JobFacts:
        return JobFacts(slots_per_step=1, lease_seconds=LEASE_SECONDS, suspended=self.suspended)

    def play(self, call: str, now: float, given: Any) -> Any:
        """Make one call; the answer as plain data, what was logged and what can be asked then."""
        with logged() as lines:
            answer = getattr(self, call)(now, given)
        return {"answer": answer, "log": lines, "state": self.digest(now)}

    def server(self, now: float, given: Json) -> Json | None:
        reply = self.coordinator.handle_server_report(ServerReport.model_validate(given), now)
        return reply.model_dump(mode="json", exclude_defaults=True) if reply is not None else None

    def worker(self, now: float, given: Json) -> Json | None:
        try:
            reply = self.coordinator.handle_worker_report(WorkerReport.model_validate(given), now)
        except (RefusedError, LedgerError) as error:
            return {type(error).__name__: str(error)}
        return reply.model_dump(mode="json", exclude_defaults=True) if reply is not None else None

    def advance(self, now: float, given: None) -> None:
        self.coordinator.advance(now)

    def agent(self, now: float, given: Json) -> None:
        state = ProcessState.EXITED if given["exited"] else ProcessState.RUNNING
        self.coordinator.handle_agent_report(
            AgentReport(
                role="worker", rank=given["rank"], incarnation=given["incarnation"], state=state
            ),
            now,
        )

    def pods(self, now: float, given: Json) -> None:
        there = {
            (rank, incarnation): ServerPod(leaving, memory)
            for rank, incarnation, leaving, memory in given["there"]
        }
        ended = frozenset((rank, incarnation) for rank, incarnation in given["ended"])
        self.coordinator.observe(PodsKnown(there, ended), now)

    def cap(self, now: float, given: int | None) -> None:
        self.coordinator.observe(RanksCapped(given), now)

    def at_least(self, now: float, given: int) -> None:
        self.coordinator.observe(ServersExpected(given), now)

    def suspend(self, now: float, given: bool) -> None:
        self.suspended = given
        self.coordinator.learn(self._facts())

    def restart(self, now: float, given: bool) -> None:
        """``given``: whether there is a journal."""
        ledger, extra = self.coordinator.state.ledger, self.coordinator.extra()
        saved = begin_journal(ledger, extra) if ledger is not None and extra is not None else None
        self.coordinator = self._begin()
        if saved is not None and given:
            restore(saved, "journal", self.coordinator, now)
        self.coordinator.await_survivors(now)

    def digest(self, now: float) -> str:
        """Of everything else that can be asked."""
        trainer, servers = self.coordinator, self.coordinator.servers
        ended = servers.transitions_after(self.told)
        self.told = max([self.told, *(each.number for each in ended)])
        state = [
            trainer.extra(),
            servers.summary(now),
            servers.message(now),
            trainer.done(),
            has_said_farewell(trainer.state, now),
            servers.active,
            servers.recovering,
            servers.revision,
            [str(each) for each in ended],
            [servers.consent(cap, now) for cap in range(3)],
            trainer.state.ledger.snapshot() if trainer.state.ledger is not None else None,
        ]
        return hashlib.blake2b(json.dumps(state).encode(), digest_size=4).hexdigest()


class Recorder(Trainer):
    """What a `World` takes for its trainer: writes down every call."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        self._log = log
        self._replies: tuple[Any, Any] = (None, None)

    def call(self, call: str, now: float, given: Any) -> Any:
        said = self.play(call, now, given)
        self._log.append([call, now, given, said])
        return said["answer"]


class RecordedWorld(World):
    """A world whose calls to its trainer are written down."""

    def __init__(self, log: list[Any], slots: int, save_every: int, saves: bool) -> None:
        self.recorder = Recorder(log)
        super().__init__(slots, save_every, saves)

    def _new_trainer(self) -> Any:
        return _Called(self)

    def suspend(self, suspended: bool) -> None:
        self.suspended = suspended
        self.recorder.call("suspend", self.now, suspended)

    def restart_trainer(self, with_journal: bool) -> None:
        self.recorder.call("restart", self.now, with_journal)
        self.set_cap(self.cap)

    def set_cap(self, cap: int | None) -> None:
        self.cap = cap
        self.recorder.call("cap", self.now, cap)


class _Called:
    """The calls of `World` to its trainer."""

    def __init__(self, world: RecordedWorld) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.recorder.coordinator, name)

    def handle_server_report(self, report: ServerReport, now: float) -> Any:
        given = report.model_dump(mode="json", exclude_defaults=True)
        answer = self._world.recorder.call("server", now, given)
        return None if answer is None else ServerReply.model_validate(answer)

    def handle_worker_report(self, report: WorkerReport, now: float) -> Any:
        given = report.model_dump(mode="json", exclude_defaults=True)
        answer = self._world.recorder.call("worker", now, given)
        if answer is None:
            return None
        if "RefusedError" in answer:
            raise RefusedError(answer["RefusedError"])
        if "LedgerError" in answer:
            raise LedgerError(answer["LedgerError"])
        return WorkerReply.model_validate(answer)

    def advance(self, now: float) -> None:
        self._world.recorder.call("advance", now, None)


class RecordedChaos(Chaos):
    """More moves: what a cluster, agents and sick processes say."""

    world: RecordedWorld

    def time_passes(self, pick: int) -> None:
        """Mostly so little that nobody is taken for dead."""
        if pick % 8:
            self.world.tick((0.1, 0.5)[pick % 2])
        else:
            super().time_passes(pick // 8)

    def pods_are_known(self, pick: int) -> None:
        there = [
            [server.id.rank, server.id.incarnation, server.draining, (None, 16, 64)[pick % 3]]
            for server in self.world.live_servers()
        ]
        if pick % 5 == 0:
            there.append([self.rank, 0, False, 64])  # it has not reported yet
        dead = {(s.id.rank, s.id.incarnation) for s in self.world.servers}
        dead -= {(rank, incarnation) for rank, incarnation, *_ in there}
        self.world.recorder.call(
            "pods", self.world.now, {"there": there, "ended": sorted(dead) if pick % 2 else []}
        )

    def agents_report(self, pick: int) -> None:
        for worker in self.world.workers:
            given = {
                "rank": worker.member.rank,
                "incarnation": worker.member.incarnation,
                "exited": not worker.alive,
            }
            self.world.recorder.call("agent", self.world.now, given)

    def memory_is_limited(self, pick: int) -> None:
        if servers := self.world.live_servers():
            servers[pick % len(servers)].memory = (8, 16, 64, None)[pick % 4]

    def server_has_trouble(self, pick: int) -> None:
        if servers := self.world.live_servers():
            server = servers[pick % len(servers)]
            server.trouble = "" if server.trouble else "no memory"

    def worker_fails(self, pick: int) -> None:
        if workers := self.world.live_workers():
            workers[pick % len(workers)].failed = ("", "disk full")[pick % 2]

    def dead_server_reports(self, pick: int) -> None:
        if dead := [server for server in self.world.servers if not server.alive]:
            self.world.late_report(dead[pick % len(dead)])

    def saving_is_switched(self, pick: int) -> None:
        self.world.saves = not self.world.saves


def record(seed: int) -> list[Any]:
    """One random life: [call, now, what was given, {answer, state}] for each event."""
    dice = random.Random(seed)
    log: list[Any] = []
    world = RecordedWorld(log, slots=24, save_every=5, saves=seed % 4 != 0)
    if seed % 6 == 5:
        world.recorder.call("at_least", world.now, 2)
    for rank in range(dice.randint(1, 3)):
        world.add_server(rank)
    for rank in range(dice.randint(1, 3)):
        world.add_worker(rank)
    chaos = RecordedChaos(world)
    rough = [*ROUGH, *MORE] if seed % 2 else ROUGH
    for _ in range(dice.randint(50, 250)):
        move = dice.choice(CALM if dice.random() < (0.9 if seed % 2 else 0.97) else rough)
        pick = dice.randrange(1 << 16)
        if move in ("server_reports", "worker_reports") and dice.random() < 0.1:
            getattr(chaos, move)(pick, True)
        else:
            getattr(chaos, move)(pick)
    chaos.calm()
    for server in world.servers:
        server.trouble, server.memory = "", None
    chaos.pods_are_known(1)
    for _ in range(60):
        if world.trainer.done():
            break
        world.round()
    world.round()
    return log


def heeded(answer: Any) -> Any:
    """Without what nobody reads: a worker that is told that all is over looks at nothing else."""
    over = isinstance(answer, dict) and answer.get("over")
    return {**answer, "layout": None, "paused": None} if over else answer


def recorded() -> dict[int, list[Any]]:
    """The lives of the file, by seed."""
    return unpack(FILE.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) == 3:  # for a comparison over more lives: one line for each
        for number in range(int(sys.argv[1]), int(sys.argv[2])):
            log = record(number)
            for event in log:
                event[3]["answer"] = heeded(event[3]["answer"])
            life = json.dumps(log, sort_keys=True).encode()
            print(number, len(log), hashlib.blake2b(life, digest_size=8).hexdigest(), flush=True)
    else:
        FILE.write_bytes(pack({seed: record(seed) for seed in LIVES}))
        print(f"{FILE}: {FILE.stat().st_size} bytes")
