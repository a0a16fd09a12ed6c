"""A job with parameter servers in memory: servers, workers and checkpoints as the real ones behave.

Every move of a party is one call, so that a test (or hypothesis) chooses any interleaving. What a
partition has seen is kept as the list of slots that were applied to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.data.ledger import LedgerError
from penstock.data.ledger.journal import begin
from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import DataSpec, LeaseRequest, MemberId
from penstock.parameter_server.control.events import RanksCapped
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import (
    Applied,
    ServerOrder,
    ServerReply,
    ServerReport,
    ServerStage,
    Source,
    WorkerPhase,
    WorkerReply,
    WorkerReport,
)
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
)
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from penstock.trainer.journal import restore

PARTITIONS = 4
SPEC = ModelSpec(
    dense=(DenseSpec(name="w", shape=(8,)),),
    optimizer=OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=1.0),
    partitions=PARTITIONS,
)
LEASE_SECONDS = 20.0


@dataclass
class Parameters:
    """The slots that each partition has seen, in order; and what the server says it has applied."""

    partitions: dict[int, list[int]] = field(default_factory=dict)
    applied: RangeSet = field(default_factory=RangeSet)
    pushes: int = 0

    def copy(self) -> Parameters:
        parts = {number: list(slots) for number, slots in self.partitions.items()}
        return Parameters(parts, self.applied.copy(), self.pushes)


class SimServer:
    """One server process; obeys as `penstock.parameter_server.server.shard` does."""

    def __init__(self, world: World, rank: int, incarnation: int, nonce: str) -> None:
        self.world = world
        self.id = ServerId(rank=rank, incarnation=incarnation, nonce=nonce)
        self.alive = True
        self.draining = False
        self.stage = ServerStage.EMPTY
        self.layout: Layout | None = None
        self.held = Parameters()
        self.next: Layout | None = None
        self.source = Source.CHIEF
        self.origin: Layout | None = None
        self.building = Parameters()
        self.built = False
        self.snapshot: tuple[int, Parameters] | None = None
        self.has_room = True  # for a copy
        self.uncopied: int | None = None
        self.seen = ("", 0)
        self.memory: int | None = None
        self.trouble = ""  # why it builds nothing
        self.data: DataSpec | None = None
        self.past: deque[ServerReport] = deque(maxlen=3)

    def report(self) -> ServerReport:
        return ServerReport(
            server=self.id,
            address=f"{self.id}:{self.id.nonce}",
            stage=self.stage,
            layout=self.layout,
            built=self.next.number if self.next is not None and self.built else 0,
            snapshot=self.snapshot[0] if self.snapshot else None,
            uncopied=self.uncopied,
            applied=Applied.of(self.held.applied, self.held.pushes),
            spec=SPEC if self.layout is not None else None,
            data=self.data if self.layout is not None else None,
            draining=self.draining,
            trouble=self.trouble,
            memory_limit_bytes=self.memory,
            seen_revision=self.seen[1],
        )

    def obey(self, reply: ServerReply) -> None:
        if reply.trainer == self.seen[0] and reply.revision < self.seen[1]:
            return
        self.seen = (reply.trainer, reply.revision)
        order = reply.order
        if order is ServerOrder.REFUSED:
            self.alive = False
        elif order is ServerOrder.IDLE:
            self.stage, self.layout, self.held = ServerStage.EMPTY, None, Parameters()
            self.next = None
            if self.draining or reply.finished:
                self.alive = False
        elif order is ServerOrder.BUILD:
            assert reply.next is not None
            if self.layout is not None:
                self.stage = ServerStage.FROZEN
            if self.trouble:
                return
            if self.next is None or self.next.number != reply.next.number:
                self.next, self.source, self.origin = reply.next, reply.source, reply.layout
                self.data = reply.data
                self.building, self.built = Parameters(), False
        else:
            self._take_up(order, reply.layout)
        wanted = reply.snapshot
        if wanted is None or (self.snapshot and self.snapshot[0] != wanted):
            self.snapshot = None
        self.uncopied = None
        if wanted is not None and self.snapshot is None and self.stage is ServerStage.FROZEN:
            if self.has_room:
                self.snapshot = (wanted, self.held.copy())
            else:
                self.uncopied = wanted

    def _take_up(self, order: ServerOrder, wanted: Layout | None) -> None:
        assert wanted is not None
        if self.next is not None and self.built and self.next.number == wanted.number:
            self.layout, self.held = self.next, self.building
        self.next = None
        if self.layout is None or self.layout.number != wanted.number:
            if self.layout is not None:
                self.stage = ServerStage.FROZEN
            return
        self.stage = {
            ServerOrder.SERVE: ServerStage.SERVING,
            ServerOrder.HALT: ServerStage.HALTED,
            ServerOrder.FREEZE: ServerStage.FROZEN,
        }[order]

    def work(self) -> None:
        """Take the next partition over from its frozen owner."""
        if self.next is None or self.built or self.source is not Source.SERVERS:
            return
        assert self.origin is not None
        for partition in self.next.owned_by(self.id):
            if partition in self.building.partitions:
                continue
            owner = self.world.find(self.origin.servers[self.origin.owners[partition]].id)
            if owner is None or owner.stage is not ServerStage.FROZEN or owner.layout is None:
                return
            if owner.layout.number != self.origin.number:
                return
            self.building.partitions[partition] = list(owner.held.partitions[partition])
            self.building.applied = owner.held.applied.copy()
            self.building.pushes = owner.held.pushes
            return
        self.built = True

    def fill(self, layout: Layout, source: Parameters) -> bool:
        """The chief writes all of this server's partitions and seals them."""
        if self.next is None or self.next.number != layout.number or not self.alive:
            return False
        parts = {p: list(source.partitions[p]) for p in layout.owned_by(self.id)}
        self.building = Parameters(parts, source.applied.copy(), source.pushes)
        self.built = True
        return True

    def begins(self, number: int) -> bool | None:
        """True: begun; False: halted; None: ask the trainer."""
        if not self.alive or self.layout is None or self.layout.number != number:
            return None
        if self.stage is ServerStage.HALTED:
            return False
        return True if self.stage is ServerStage.SERVING else None

    def push(self, number: int, slot: int) -> bool:
        if not self.alive or self.layout is None or self.layout.number != number:
            return False
        if self.stage not in (ServerStage.SERVING, ServerStage.HALTED):
            return False
        if slot not in self.held.applied:
            for slots in self.held.partitions.values():
                slots.append(slot)
            self.held.applied.add(slot, slot + 1)
            self.held.pushes += 1
        return True


class Reading:
    """A chief's save of what the servers themselves hold."""

    def __init__(self, layout: Layout, number: int) -> None:
        self.layout = layout
        self.number = number
        self.unread = [server.id for server in layout.servers]
        self.unsure = list(self.unread)  # whether they have changed since
        self.whole = Parameters()


class SimWorker:
    """One worker process."""

    def __init__(self, world: World, rank: int, incarnation: int, nonce: str) -> None:
        self.world = world
        self.member = MemberId(rank=rank, incarnation=incarnation, nonce=nonce)
        self.alive = True
        self.phase = WorkerPhase.RUNNING
        self.layout: Layout | None = None
        self.known = 0
        self.ahead: deque[tuple[int, int]] = deque()
        self.working: tuple[int, int] | None = None
        self.to_push: list[ServerId] | None = None
        self.done: list[tuple[int, int, int]] = []
        self.returned: set[int] = set()
        self.filled = 0
        self.saved: int | None = None
        self.filling: tuple[Layout, Parameters, list[ServerId]] | None = None
        self.full_at: set[int] = set()  # slots of checkpoints for which the disk has no room
        self.reading: Reading | None = None
        self.read: int | None = None
        self.failed = ""
        self.seen = 0
        self.leaving = False

    def exchange(self, lose_reply: bool = False) -> None:
        """Report and carry out what comes back; the trainer may be away."""
        if self.leaving and self.working is None:
            self.returned |= {fence for fence, _ in self.ahead}
            self.ahead.clear()
            self.phase = WorkerPhase.LEAVING
        report = self._report()
        reply = self.world.worker_call(report)
        if reply is None or lose_reply:
            return
        self._obey(reply)
        if self.phase is WorkerPhase.CLOSED:
            self.world.worker_call(self._report())

    def _report(self) -> WorkerReport:
        held = {fence for fence, _ in self.ahead} | ({self.working[0]} if self.working else set())
        lost = [
            server.id
            for server in (self.layout.servers if self.layout else ())
            if self.world.find(server.id) is None
        ]
        request = LeaseRequest(
            holder=f"worker-{self.member.rank}.{self.member.incarnation}/{self.member.nonce}",
            data=self.world.data,
            max_slots=0
            if self.ahead or self.working or self.phase is not WorkerPhase.RUNNING
            else 4,
            completed=tuple(self.done),
            returned=tuple(sorted(self.returned)),
            held=tuple(sorted(held)),
            slot_seconds=1.0,
        )
        return WorkerReport(
            member=self.member,
            phase=self.phase,
            spec=SPEC,
            lease=request,
            layout=self.known,
            checkpoint=max(self.world.files, default=None) if self.world.saves else None,
            saves=self.world.saves,
            save_every_slots=self.world.save_every,
            filled=self.filled,
            read=self.read,
            saved=self.saved,
            lost=tuple(lost),
            dropped={},
            failed=self.failed,
            seen_revision=self.seen,
        )

    def _obey(self, reply: WorkerReply) -> None:
        self.done.clear()
        self.returned.clear()
        self.seen = reply.revision
        if reply.layout is not None:
            if self.layout is None or self.layout.number != reply.layout.number:
                self.to_push = None  # to all servers of the new layout
            self.layout, self.known = reply.layout, reply.layout.number
        else:
            self.layout = None
        if reply.lease.fence is not None:
            fence = reply.lease.fence
            self.ahead += [(fence, slot) for slot in range(reply.lease.start, reply.lease.stop)]
        through = self.working is None and not self.ahead  # a lease that has ended is worked off
        if reply.lease.finished and self.phase is WorkerPhase.RUNNING and through:
            self.phase = WorkerPhase.FINISHED
        elif self.phase is WorkerPhase.FINISHED or (self.leaving and not reply.stay):
            self.phase = WorkerPhase.CLOSED
        at_it = self.filling[0].number if self.filling is not None else self.filled
        if reply.fill is not None and reply.fill.number not in (at_it, self.filled):
            self._begin_fill(reply.fill, reply.fill_checkpoint)
        known = self.saved if self.reading is None else self.reading.number
        if reply.save is not None and reply.save != known:
            if reply.save_from is not None:
                self.failed = ""
                self.reading = Reading(reply.save_from.layout, reply.save)
            elif reply.layout is not None:
                self._save(reply.layout, reply.save)

    def _begin_fill(self, layout: Layout, checkpoint: int | None) -> None:
        self.failed = ""
        source = Parameters({p: [] for p in range(PARTITIONS)})
        if checkpoint is not None:
            source = self.world.files[checkpoint]
        self.filling = (layout, source, [server.id for server in layout.servers])

    def _save(self, layout: Layout, number: int) -> None:
        if number in self.full_at:
            self.failed = "No space left on device"
            return
        whole = Parameters()
        for server in layout.servers:
            sim = self.world.find(server.id)
            if sim is None or sim.snapshot is None or sim.snapshot[0] != number:
                self.failed = "no such snapshot"
                return
            copy = sim.snapshot[1].copy()
            whole.partitions.update(copy.partitions)
            if whole.applied:
                assert whole.applied == copy.applied, "snapshots differ"
            whole.applied, whole.pushes = copy.applied, copy.pushes
        self.world.write(number, whole)
        self.saved, self.failed = number, ""

    def step(self) -> None:
        """The smallest next thing that this worker does apart from asking the trainer."""
        if self.reading is not None:
            self._read_on(self.reading)
        elif self.filling is not None:
            self._fill_on()
        elif self.working is not None:
            self._push_on()
        elif self.ahead and self.layout is not None:
            self._begin()

    def _read_on(self, reading: Reading) -> None:
        """Read one server, ask one whether it has changed, or write the file."""
        if self.read is not None:
            self.world.write(reading.number, reading.whole)
            self.saved, self.failed = reading.number, ""
            self.reading = self.read = None
            return
        left = reading.unread or reading.unsure
        server = self.world.find(left.pop(0))
        layout = server.layout if server is not None else None
        if server is None or layout is None or layout.number != reading.layout.number:
            self.failed, self.reading = "a server has gone on", None
        elif server.held.applied.total != reading.number:
            self.failed, self.reading = "a server was changed", None
        elif left is reading.unread and server.stage is not ServerStage.FROZEN:
            self.failed, self.reading = "a server is not frozen", None
        elif left is reading.unread:
            copy = server.held.copy()
            reading.whole.partitions.update(copy.partitions)
            reading.whole.applied, reading.whole.pushes = copy.applied, copy.pushes
        elif not left:
            self.read = reading.number

    def _fill_on(self) -> None:
        assert self.filling is not None
        layout, source, left = self.filling
        server = self.world.find(left[0])
        if server is None or not server.fill(layout, source):
            self.failed, self.filling = "a server does not take it", None
            return
        left.pop(0)
        if not left:
            self.filled, self.filling = layout.number, None

    def _begin(self) -> None:
        assert self.layout is not None
        servers = [self.world.find(server.id) for server in self.layout.servers]
        answers = [s.begins(self.layout.number) if s is not None else None for s in servers]
        if all(answers):
            self.working = self.ahead.popleft()
            self.world.begun += 1
            self.to_push = [server.id for server in self.layout.servers]
        elif None in answers:
            self.layout = None  # ask the trainer
        else:
            self.returned |= {fence for fence, _ in self.ahead}
            self.ahead.clear()

    def _push_on(self) -> None:
        assert self.working is not None
        if self.layout is None:
            return
        if self.to_push is None:
            self.to_push = [server.id for server in self.layout.servers]
        if self.to_push:
            server = self.world.find(self.to_push[0])
            if server is None or not server.push(self.layout.number, self.working[1]):
                self.layout, self.to_push = None, None
                return
            self.to_push.pop(0)
        if not self.to_push:
            fence, slot = self.working
            self.done.append((fence, slot, slot + 1))
            self.working = self.to_push = None


class World:
    """One job; see the module's docstring."""

    def __init__(self, slots: int = 24, save_every: int = 6, saves: bool = True) -> None:
        self.data = DataSpec(
            dataset_size=slots * 2, global_batch=2, epochs=1, slots_per_step=1, shuffle=False
        )
        self.slots = slots
        self.saves = saves
        self.save_every = save_every
        self.now = 1000.0
        self.servers: list[SimServer] = []
        self.workers: list[SimWorker] = []
        self.files: dict[int, Parameters] = {}
        self.lives = 0
        self.names = 0
        self.refusals: list[str] = []
        self.cap: int | None = None
        self.suspended = False
        self.begun = 0  # batches
        self.trainer = self._new_trainer()

    def _new_trainer(self) -> Coordinator:
        self.lives += 1
        trainer = Coordinator(
            self._facts(), identity=f"t{self.lives}", fence_floor=self.lives << 24
        )
        trainer.learn(self._facts())
        return trainer

    def _facts(self) -> JobFacts:
        return JobFacts(slots_per_step=1, lease_seconds=LEASE_SECONDS, suspended=self.suspended)

    def suspend(self, suspended: bool) -> None:
        """Edit the job's spec."""
        self.suspended = suspended
        self.trainer.learn(self._facts())

    def restart_trainer(self, with_journal: bool) -> None:
        ledger, extra = self.trainer.state.ledger, self.trainer.extra()
        saved = begin(ledger, extra) if ledger is not None and extra is not None else None
        self.trainer = self._new_trainer()
        if saved is not None and with_journal:
            restore(saved, "journal", self.trainer, self.now)
        self.trainer.await_survivors(self.now)
        self.trainer.observe(RanksCapped(self.cap), self.now)

    def set_cap(self, cap: int | None) -> None:
        self.cap = cap
        self.trainer.observe(RanksCapped(cap), self.now)

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def add_server(self, rank: int, incarnation: int = 0) -> SimServer:
        server = SimServer(self, rank, incarnation, self.name())
        self.servers.append(server)
        return server

    def add_worker(self, rank: int, incarnation: int = 0) -> SimWorker:
        worker = SimWorker(self, rank, incarnation, self.name())
        self.workers.append(worker)
        return worker

    def find(self, server: ServerId) -> SimServer | None:
        return next((each for each in self.servers if each.id == server and each.alive), None)

    def live_servers(self) -> list[SimServer]:
        return [server for server in self.servers if server.alive]

    def live_workers(self) -> list[SimWorker]:
        return [w for w in self.workers if w.alive and w.phase is not WorkerPhase.CLOSED]

    def server_exchange(self, server: SimServer, lose_reply: bool = False) -> None:
        report = server.report()
        server.past.append(report)
        reply = self.trainer.handle_server_report(report, self.now)
        if reply is not None and not lose_reply:
            server.obey(reply)

    def late_report(self, server: SimServer) -> None:
        """An old report of a server comes again; the answer goes nowhere."""
        if server.past:
            self.trainer.handle_server_report(server.past[0], self.now)

    def worker_call(self, report: WorkerReport) -> WorkerReply | None:
        try:
            return self.trainer.handle_worker_report(report, self.now)
        except RefusedError as error:
            self.refusals.append(str(error))
            return None
        except LedgerError as error:
            raise AssertionError(f"{error}") from error

    def tick(self, seconds: float) -> None:
        """Time goes by; who lives goes on reporting."""
        self.now += seconds
        self.trainer.advance(self.now)

    def round(self, seconds: float = 0.2) -> None:
        """Everybody does something once."""
        self.tick(seconds)
        for server in self.live_servers():
            server.work()
            self.server_exchange(server)
        for worker in self.live_workers():
            for _ in range(3):
                worker.step()
            worker.exchange()

    def run(self, rounds: int = 2000) -> None:
        """Until the job is done."""
        for _ in range(rounds):
            if self.trainer.done() or self.lost_at_the_end():
                return
            self.round()
            self.check()
        servers = self.trainer.servers
        ledger = self.trainer.state.ledger
        raise AssertionError(
            f"does not get on: {servers.summary(self.now)}; {servers.message(self.now)}; "
            f"leases {ledger.leases() if ledger else None}; refusals {self.refusals[-3:]}"
        )

    def write(self, number: int, whole: Parameters) -> None:
        """A chief's checkpoint gets its name."""
        assert len(whole.partitions) == PARTITIONS
        assert whole.applied.total == number
        for partition, slots in whole.partitions.items():
            assert RangeSet((slot, slot + 1) for slot in slots) == whole.applied, partition
        self.files[number] = whole

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        """At most one layout can be trained on; no partition has seen a slot twice."""
        served = set()
        for server in self.live_servers():
            if server.layout is None or server.stage not in (
                ServerStage.SERVING,
                ServerStage.HALTED,
            ):
                continue
            owners = [self.find(owner.id) for owner in server.layout.servers]
            if all(
                owner is not None
                and owner.layout is not None
                and owner.layout.number == server.layout.number
                and owner.stage in (ServerStage.SERVING, ServerStage.HALTED)
                for owner in owners
            ):
                served.add(server.layout.number)
        assert len(served) <= 1, f"layouts {served} are served at once"
        for server in self.live_servers():
            for partition, slots in server.held.partitions.items():
                assert len(set(slots)) == len(slots), f"partition {partition}: {slots}"
            assert server.held.pushes == server.held.applied.total
        if self.trainer.state.ledger is not None:
            self.trainer.state.ledger.state.check_invariants()

    def lost_at_the_end(self) -> bool:
        """A server died after the last batch, nobody saves, and somebody wants the model yet."""
        return not self.saves and "lost after the end" in self.trainer.servers.rejection_reason

    def check_end(self) -> None:
        """Everything was applied once to every partition of the layout."""
        layout = self.trainer.servers.layout
        assert layout is not None or self.trainer.servers.at_end
        for partition, owner in enumerate(layout.owners if layout is not None else ()):
            assert layout is not None
            server = next(s for s in self.servers if s.id == layout.servers[owner].id)
            if server.layout is None:
                continue  # it was told that all is done, and has gone
            assert sorted(server.held.partitions[partition]) == list(range(self.slots))
        if self.saves:
            newest = self.files[max(self.files)]
            assert newest.applied == RangeSet([(0, self.slots)])
            for slots in newest.partitions.values():
                assert sorted(slots) == list(range(self.slots))
        audits = self.trainer.state.audits.values()
        assert sum(audit.samples_seen for audit in audits) == 2 * self.slots
        assert sum(audit.samples_lost + audit.samples_repeated for audit in audits) == 0
