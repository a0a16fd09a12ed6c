"""Recordings of random lives of a job without parameter servers: what its trainer answered.

They hold a change of the decisions' shape to equal answers, as those of the parameter servers do
(`tests.parameter_server.control.recorded_lives`): `Trainer.play` gives the same events to the
present code, and `test_recorded_lives` compares. Where an answer is meant to change:

    python -m tests.trainer.control.recorded_lives

makes them anew; the difference says in which answers, and belongs to that change.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.base.enums import Guarantee
from penstock.crds.conditions import JobReason
from penstock.data.ledger import LedgerError
from penstock.data.ledger.journal import begin as begin_journal
from penstock.job.protocol import (
    AgentReport,
    DataSpec,
    LeaseReply,
    LeaseRequest,
    MemberId,
    Phase,
    ProcessState,
    SessionReport,
    TrainingProcess,
    Usage,
)
from penstock.job.work_source import Part
from penstock.trainer.control import queries
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from penstock.trainer.control.model.events import PodsKnown
from penstock.trainer.control.model.job import ControlSettings
from penstock.trainer.journal import restore
from tests.recordings import logged, pack, unpack
from tests.trainer.control.simulated_group import GroupWorld, SimSession

FILE = Path(__file__).with_name("recorded_lives.json.xz")
LIVES = range(40)
LEASE_SECONDS = 20.0
HANG_SECONDS = 30.0

Json = dict[str, Any]


class Trainer:
    """A job's trainer by its calls, each of them plain data; `play` makes one call."""

    def __init__(self) -> None:
        self.lives = 0
        self.facts: Json = {}
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        self.coordinator = Coordinator(
            self._facts(),
            identity=f"t{self.lives}",
            settings=ControlSettings(hang_seconds=HANG_SECONDS),
            fence_floor=self.lives << 24,
        )
        self.coordinator.learn(self._facts())

    def _facts(self) -> JobFacts:
        values = {"slots_per_step": 4, "lease_seconds": LEASE_SECONDS, **self.facts}
        if "guarantee" in values:
            values["guarantee"] = Guarantee(values["guarantee"])
        return JobFacts(**values)

    def play(self, call: str, now: float, given: Any) -> Any:
        """Make one call; the answer as plain data, what was logged and what can be asked then."""
        with logged() as lines:
            try:
                answer = getattr(self, call)(now, given)
            except (RefusedError, LedgerError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
        return {"answer": answer, "log": lines, "state": self.digest(now)}

    # ------------------------------------------------------------------ calls

    def session(self, now: float, given: Json) -> Json:
        reply = self.coordinator.handle_session_report(SessionReport.model_validate(given), now)
        return reply.model_dump(mode="json", exclude_defaults=True)

    def lease(self, now: float, given: Json) -> Json:
        reply = self.coordinator.grant_lease(LeaseRequest.model_validate(given), now)
        return reply.model_dump(mode="json", exclude_defaults=True)

    def agent(self, now: float, given: Json) -> Json:
        reply = self.coordinator.handle_agent_report(AgentReport.model_validate(given), now)
        return reply.model_dump(mode="json", exclude_defaults=True)

    def advance(self, now: float, given: None) -> None:
        self.coordinator.advance(now)

    def pods(self, now: float, given: Json) -> None:
        known = PodsKnown(
            expected=frozenset(given["expected"]),
            running=frozenset((rank, number) for rank, number in given["running"]),
            ended=tuple((rank, number) for rank, number in given["ended"]),
        )
        self.coordinator.observe(known, now)

    def expect(self, now: float, given: list[int] | None) -> None:
        self.coordinator.expect_workers(given)

    def learn(self, now: float, given: Json) -> None:
        self.facts = given
        self.coordinator.learn(self._facts())

    def weigh(self, now: float, given: Json) -> None:
        self.coordinator.weigh_shares({int(rank): weight for rank, weight in given.items()})

    def refusal_is_shown(self, now: float, given: None) -> None:
        self.coordinator.confirm_refusal_shown()

    def journal(self, now: float, given: str) -> None:
        """``given``: why the journal cannot be written; empty: it can."""
        self.coordinator.note_journal(given, now)

    def restart(self, now: float, given: bool) -> None:
        """``given``: whether there is a journal."""
        ledger, extra = self.coordinator.state.ledger, self.coordinator.extra()
        saved = begin_journal(ledger, extra) if ledger is not None and extra is not None else None
        self._begin()
        if saved is not None and given:
            restore(saved, "journal", self.coordinator, now)
        self.coordinator.await_survivors(now)

    # ------------------------------------------------------------------ what can be asked

    def digest(self, now: float) -> str:
        """Of everything else that can be asked."""
        trainer, known = self.coordinator, self.coordinator.state
        rendezvous, used = known.rendezvous, known.agents.usage(now)
        state = [
            trainer.extra(),
            asdict(trainer.summary(now)),
            trainer.done(),
            queries.has_said_farewell(known, now),
            sorted(queries.find_latecomers(known, now)),
            known.agents.any_worker_runs(now),
            {f"{role}-{rank}": each.cpu_cores for (role, rank), each in used.items()},
            sorted(queries.find_stragglers(known).items()),
            sorted(queries.slots_by_rank(known).items()),
            queries.world_size(known, now),
            known.committed_steps,
            known.lease_stop_step,
            rendezvous.revision,
            rendezvous.slots_per_step,
            [[m.id.rank, m.id.nonce, m.report.phase, m.seen] for m in rendezvous.members.present],
            [asdict(problem) for problem in trainer.problems.current()],
            known.progress.steps_per_second(now, 5.0),
            known.ledger.snapshot() if known.ledger is not None else None,
        ]
        plain = json.dumps(state, default=str)
        return hashlib.blake2b(plain.encode(), digest_size=4).hexdigest()


class Recorder(Trainer):
    """What a world takes for its trainer: writes down every call."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        self._log = log

    def call(self, call: str, now: float, given: Any) -> Any:
        """Make a call as `GroupWorld` does."""
        said = self.play(call, now, given)
        self._log.append([call, now, given, said])
        return said["answer"]


class Chaos:
    """Moves of a world, by name; each picks its victim by a number."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.call = world.trainer.call
        self.exits: dict[tuple[int, int], int] = {}
        self.facts: Json = {}
        self.bad: int | None = None  # a slot on which programs crash

    def _pick(self, pick: int) -> SimSession | None:
        live = self.world.live()
        return live[pick % len(live)] if live else None

    # ------------------------------------------------------------------ calm

    def session_reports(self, pick: int) -> None:
        if session := self._pick(pick):
            session.exchange(lose_reply=pick % 11 == 0)

    def everybody_reports(self, pick: int) -> None:
        for session in self.world.live():
            session.exchange()

    def group_steps(self, pick: int) -> None:
        self.world.step(pick % 9, ragged=pick % 2 == 0)

    def time_passes(self, pick: int) -> None:
        self.world.tick((0.1, 0.1, 0.5, 0.9, 0.1, 0.3, 1.0, 2.5)[pick % 8])

    def agents_report(self, pick: int) -> None:
        for session in self.world.sessions:
            member = session.member
            self._agent(member.rank, member.incarnation, session.alive, pick)

    def _agent(self, rank: int, incarnation: int, alive: bool, pick: int, **fields: Any) -> None:
        code = None if alive else self.exits.setdefault((rank, incarnation), (0, 1, 137)[pick % 3])
        report = AgentReport(
            role="worker",
            rank=rank,
            incarnation=incarnation,
            state=ProcessState.RUNNING if alive else ProcessState.EXITED,
            exit_code=code,
            usage=Usage(cpu_cores=0.5 + pick % 4, memory_bytes=1 << 20) if alive else None,
            **{"life": f"a{rank}.{incarnation}", **fields},
        )
        self.call("agent", self.world.now, report.model_dump(mode="json", exclude_defaults=True))

    # ------------------------------------------------------------------ rough

    def long_time_passes(self, pick: int) -> None:
        self.world.tick((4.0, 12.0, 25.0, 40.0)[pick % 4])

    def standstill_ends(self, pick: int) -> None:
        """Time goes by while nobody looks."""
        self.world.now += (2.0, 15.0, 45.0)[pick % 3]

    def group_hangs(self, pick: int) -> None:
        for _ in range(36):
            self.world.tick(0.9)
            self.everybody_reports(pick)
        self.agents_report(pick)

    def session_dies(self, pick: int) -> None:
        if session := self._pick(pick):
            session.alive = False

    def process_restarts(self, pick: int) -> None:
        """A process of the same pod, or of its next incarnation, has the rank."""
        if session := self._pick(pick):
            session.alive = pick % 5 == 0
            self.world.add_session(session.member.rank, session.member.incarnation + pick % 2)

    def newcomer(self, pick: int) -> None:
        ranks = {session.member.rank for session in self.world.live()}
        rank = next(rank for rank in range(99) if rank not in ranks)
        if rank < 6:
            dead = [s.member.incarnation for s in self.world.sessions if s.member.rank == rank]
            self.world.add_session(rank, max(dead, default=-1) + 1)

    def old_report_arrives(self, pick: int) -> None:
        if said := [past for session in self.world.sessions for past in session.past]:
            self.call("session", self.world.now, said[pick % len(said)])

    def session_drains(self, pick: int) -> None:
        if session := self._pick(pick):
            session.phase, session.group = Phase.LEAVING, None
            session.exchange()
            session.alive = False

    def slot_fails(self, pick: int) -> None:
        if session := self._pick(pick):
            self.crash(session)

    def crash(self, session: SimSession) -> None:
        """Its program raises an error on a slot, which it says last."""
        if session.phase is Phase.TRAINING and session.committed is not None:
            self.bad = self.bad or session.committed * self.world.order.slots_per_step + 6
            session.failed = self.bad
            session.phase, session.group = Phase.LEAVING, None
            session.exchange()
            session.alive = False

    def speeds_change(self, pick: int) -> None:
        for index, session in enumerate(self.world.live()):
            session.slot_seconds = (0.1, 0.1, 0.1, 0.4, 1.0)[(pick >> index) % 5]

    def session_has_troubles(self, pick: int) -> None:
        if session := self._pick(pick):
            reasons = (JobReason.CHECKPOINTS_NOT_WRITTEN, JobReason.STEP_LOG_NOT_WRITTEN)
            trouble = {"reason": reasons[pick % 2], "message": "no room"}
            session.troubles = [] if session.troubles else [trouble]

    def wrong_report_arrives(self, pick: int) -> None:
        if session := self._pick(pick):
            said = session.report()
            if pick % 2:
                said["data"] = {**said["data"], "dataset_size": 7}
            else:
                said["committed"] = 1 << 30
            self.call("session", self.world.now, said)

    def pods_are_known(self, pick: int) -> None:
        live = {(s.member.rank, s.member.incarnation) for s in self.world.live()}
        dead = {(s.member.rank, s.member.incarnation) for s in self.world.sessions} - live
        extra = {(5, 3)} if pick % 4 == 0 else set()
        given = {
            "expected": sorted({rank for rank, _ in live | extra}),
            "running": [list(each) for each in sorted(live | extra)],
            "ended": [list(each) for each in sorted(dead)] if pick % 2 else [],
        }
        self.call("pods", self.world.now, given)

    def job_is_edited(self, pick: int) -> None:
        self.facts = {
            **self.facts,
            "min_workers": 1 + pick % 2,
            "skip_bad": bool(pick % 3),
            "independent": pick % 13 == 0,
        }
        self.call("learn", self.world.now, self.facts)

    def shares_are_weighed(self, pick: int) -> None:
        self.call("weigh", self.world.now, {str(pick % 3): 0.5} if pick % 2 else {})

    def trainer_restarts(self, pick: int) -> None:
        self.call("restart", self.world.now, pick % 3 > 0)

    def journal_fails(self, pick: int) -> None:
        self.call("journal", self.world.now, "disk full" if pick % 2 else "")

    def evaluator_reports(self, pick: int) -> None:
        said = {"role": "evaluator", "rank": pick % 2, "incarnation": pick % 3}
        state = {"state": "exited", "exit_code": 0} if pick % 2 else {}
        self.call("agent", self.world.now, {**said, **state})

    def old_agent_reports(self, pick: int) -> None:
        self._agent(pick % 3, 0, True, pick)

    def holder_comes(self, pick: int) -> None:
        """Somebody leases, in a job whose sessions share their steps."""
        wanted = LeaseRequest(holder="worker-9.0", data=self.world.data, max_slots=4)
        self.call("lease", self.world.now, wanted.model_dump(mode="json", exclude_defaults=True))


CALM = [
    "session_reports",
    "session_reports",
    "everybody_reports",
    "group_steps",
    "group_steps",
    "time_passes",
    "time_passes",
    "agents_report",
]
ROUGH = [name for name in vars(Chaos) if not name.startswith("_") and name not in (*CALM, "crash")]


def live_as_group(log: list[Any], dice: random.Random) -> None:
    """Sessions that train together."""
    slots = dice.choice((4, 4, 5))
    data = DataSpec(
        dataset_size=300, global_batch=10, epochs=dice.choice((4, 40)), slots_per_step=slots
    )
    world = GroupWorld(Recorder(log), data, slots)
    chaos = Chaos(world)
    for rank in range(dice.randint(1, 4)):
        world.add_session(rank)
    if dice.random() < 0.5:
        chaos.pods_are_known(1)
    rough = dice.choice((0.03, 0.1, 0.2))
    for _ in range(dice.randint(80, 300)):
        move = dice.choice(ROUGH if dice.random() < rough else CALM)
        getattr(chaos, move)(dice.randrange(1 << 16))
    if dice.random() < 0.5:
        crash_on_one_slot(world, chaos, dice)
    world.trainer.call("learn", world.now, {"skip_bad": True})
    chaos.newcomer(0)
    chaos.pods_are_known(1)
    for _ in range(40):
        world.round(0.5)
    for session in world.live():
        session.alive = False
    chaos.agents_report(0)
    world.tick(0.1)


def crash_on_one_slot(world: GroupWorld, chaos: Chaos, dice: random.Random) -> None:
    """Three workers, one after the other."""
    chaos.bad = None
    for rank in range(10, 13):
        victim = world.add_session(rank)
        for _ in range(8):
            world.round(0.5)
        if chaos.bad is None and victim.committed is not None:
            chaos.bad = (victim.committed + 40) * world.order.slots_per_step + dice.randrange(3)
        chaos.crash(victim)


def live_by_leases(log: list[Any], dice: random.Random) -> None:
    """Holders on their own, of any guarantee."""
    trainer = Recorder(log)
    guarantee = dice.choice(["ExactlyOnce", "AtMostOnce", "Unsharded"])
    data = DataSpec(dataset_size=60, global_batch=4, epochs=1, slots_per_step=1)
    now, held = 1000.0, {}  # type: float, dict[str, dict[int, tuple[int, int]]]
    trainer.call("learn", now, {"guarantee": guarantee, "skip_bad": dice.random() < 0.5})
    for _ in range(dice.randint(40, 160)):
        now += dice.choice((0.1, 0.5, 2.0, 2.0, 25.0 if dice.random() < 0.1 else 0.3))
        rank, number = dice.randrange(3), 0 if dice.random() < 0.9 else 1
        holder = f"worker-{rank}.{number}/p"
        mine = held.setdefault(holder, {})
        done = [
            (fence, start, stop) for fence, (start, stop) in mine.items() if dice.random() < 0.6
        ]
        for fence, *_ in done:
            del mine[fence]
        given: Json = {"holder": holder, "data": data.model_dump(), "max_slots": dice.randrange(5)}
        if done:
            given["completed"] = done
        if mine and dice.random() < 0.1:
            given["failed"] = [(fence, start) for fence, (start, _) in mine.items()]
            mine.clear()
        if mine and dice.random() < 0.1:
            given["returned"] = list(mine)
            mine.clear()
        if dice.random() < 0.3:
            given["held"] = list(mine)
        if dice.random() < 0.3:
            given["slot_seconds"] = dice.choice((0.01, 1.0, 30.0))
        if dice.random() < 0.03:
            given["data"] = {**given["data"], "seed": 5}
        answer = trainer.call("lease", now, json.loads(json.dumps(given)))
        if "error" not in answer and LeaseReply.model_validate(answer).fence is not None:
            mine[answer["fence"]] = (answer.get("start", 0), answer["stop"])
        if dice.random() < 0.3:
            said: Json = {"role": "worker", "rank": rank, "incarnation": number}
            if dice.random() < 0.2:
                said |= {"state": "exited", "exit_code": dice.choice((0, 1, 137))}
            trainer.call("agent", now, said)
        if dice.random() < 0.2:
            trainer.call("advance", now, None)
        if dice.random() < 0.03:
            trainer.call("restart", now, dice.random() < 0.7)
        if dice.random() < 0.01 or len(log) == 60:
            member = MemberId(rank=7, incarnation=0, nonce="s")
            late = SessionReport(member=member, phase=Phase.READY, address="h:1", data=data)
            trainer.call("session", now, late.model_dump(mode="json", exclude_defaults=True))


def live_without_api(log: list[Any], dice: random.Random) -> None:
    """Programs that only their agents speak for: together, or each a copy by itself."""
    trainer = Recorder(log)
    now, workers = 1000.0, dice.randint(1, 3)
    if dice.random() < 0.5:
        trainer.call("expect", now, list(range(workers)))
    if dice.random() < 0.2:
        trainer.call("learn", now, {"independent": True})
    together, silent = dice.random() < 0.3, dice.random() < 0.2
    began: dict[int, float] = {}
    ended: dict[int, int] = {}
    for _ in range(dice.randint(40, 120)):
        now += dice.choice((0.2, 0.3, 0.5, 1.0))
        rank = dice.randrange(workers)
        if dice.random() < 0.008:
            ended[rank] = dice.choice((0, 0, 1))
        seconds = now - began.setdefault(rank, now)
        process = TrainingProcess(
            pid=40 + rank,
            part=Part.OWN,
            rank=rank if together else 0,
            world_size=workers if together else 1,
            seconds=seconds if seconds > 2 else None,
            widest=workers if together else 1,
            widest_rank=rank if together else 0,
        )
        said = AgentReport(
            role="worker",
            rank=rank,
            incarnation=0,
            life=f"l{rank}" if dice.random() < 0.995 else "other",
            state=ProcessState.EXITED if rank in ended else ProcessState.RUNNING,
            exit_code=ended.get(rank),
            processes=() if silent else (process,),
            duplicates=(4, 5) if dice.random() < 0.003 else (),
        )
        answer = trainer.call("agent", now, said.model_dump(mode="json", exclude_defaults=True))
        trainer.call("advance", now, None)
        if answer.get("undecided") and dice.random() < 0.3:
            trainer.call("refusal_is_shown", now, None)
        if dice.random() < 0.02:
            trainer.call("restart", now, True)
    member = MemberId(rank=0, incarnation=0, nonce="s")
    data = DataSpec(dataset_size=60, global_batch=4, epochs=1)
    late = SessionReport(member=member, phase=Phase.READY, address="h:1", data=data)
    trainer.call("session", now, late.model_dump(mode="json", exclude_defaults=True))


def record(seed: int) -> list[Any]:
    """One random life: [call, now, what was given, {answer, log, state}] for each event."""
    dice = random.Random(seed)
    log: list[Any] = []
    (live_as_group, live_as_group, live_by_leases, live_without_api)[seed % 4](log, dice)
    return log


def recorded() -> dict[int, list[Any]]:
    """The lives of the file, by seed."""
    return unpack(FILE.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) == 3:  # for a comparison over more lives: one line for each
        for number in range(int(sys.argv[1]), int(sys.argv[2])):
            life = json.dumps(log := record(number), sort_keys=True).encode()
            print(number, len(log), hashlib.blake2b(life, digest_size=8).hexdigest(), flush=True)
    else:
        FILE.write_bytes(pack({seed: record(seed) for seed in LIVES}))
        print(f"{FILE}: {FILE.stat().st_size} bytes")
