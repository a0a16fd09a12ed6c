"""The trainer's memory and decisions, without I/O: membership, ledger, figures of one job.

`Coordinator` joins the rendezvous (who trains together) with the ledger (what is done) and turns
each report into orders. It is single-threaded and takes the time as an argument; the server calls
it, the service ticks it and carries its events to the journal and its snapshots to the Brain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.enums import TRAINER_ROLE, Guarantee, Role
from penstock.crds.conditions import JobReason
from penstock.data.ledger import Ledger, LedgerOptions, SampleOrder, SnapshotError
from penstock.job.protocol import (
    AgentReply,
    AgentReport,
    DataSpec,
    Directive,
    EpochAudit,
    Group,
    LeaseReply,
    LeaseRequest,
    Phase,
    ProcessState,
    SessionReply,
    SessionReport,
    Usage,
)
from penstock.parameter_server.control.audits import audits_of
from penstock.parameter_server.control.coordinator import ServerCoordinator
from penstock.parameter_server.protocol import (
    ServerReply,
    ServerReport,
    WorkerReply,
    WorkerReport,
)
from penstock.parameter_server.spec import ModelSpec
from penstock.trainer.control.group_leases import GroupLeases, unusable
from penstock.trainer.control.load_balance import improved
from penstock.trainer.control.rendezvous import Rendezvous, Timing
from penstock.trainer.control.stragglers import stragglers
from penstock.trainer.control.summary import Progress, Summary
from penstock.trainer.control.write_problems import WriteProblems
from penstock.trainer.independent_leases import IndependentLeases, holder_name
from penstock.trainer.problems import Problems
from penstock.trainer.silent_copies import SilentCopies

DEFAULT_SLOTS_PER_STEP: Final = 64
SHARES_EVERY_SECONDS: Final = 5.0
MAX_AGENTS: Final = 16384
FRESH_SECONDS: Final = 10.0
"""An agent that has not reported for this long is not known to live."""
RECOVERY_SECONDS: Final = 5.0
HANG_SECONDS: Final = 1800.0
"""A program that keeps the others from the end of a step for this long is ended by its agent."""


class RefusedError(Exception):
    """A report that cannot be true or does not fit the job; says which field."""


@dataclass
class JobFacts:
    """What the job's spec says, as far as the coordinator needs it."""

    slots_per_step: int | None = None
    lease_seconds: float = 20.0
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    skip_bad: bool = False
    min_workers: int = 1
    suspended: bool = False
    independent: bool = False
    """Its workers are programs of their own: they need not train together."""


@dataclass
class AgentState:
    """The newest report of one agent."""

    report: AgentReport
    seen: float

    def runs(self, now: float) -> bool:
        """Whether it said a moment ago that its program runs."""
        running = self.report.state is ProcessState.RUNNING
        return running and now - self.seen <= FRESH_SECONDS


class Coordinator:
    """One job's trainer, without its sockets, files and clock."""

    def __init__(
        self,
        facts: JobFacts,
        identity: str,
        timing: Timing | None = None,
        fence_floor: int = 0,
    ) -> None:
        self.facts = facts
        self.fence_floor = fence_floor
        self.identity = identity
        self.rendezvous = Rendezvous(facts.slots_per_step or DEFAULT_SLOTS_PER_STEP, timing)
        self.rendezvous.min_workers = facts.min_workers
        self.ledger: Ledger | None = None
        self.order: SampleOrder | None = None
        self.data: DataSpec | None = None
        self.agents: dict[tuple[str, int], AgentState] = {}
        self.running: frozenset[tuple[int, int]] = frozenset()  # workers' pods: rank, incarnation
        self.audits: dict[int, EpochAudit] = {}
        self.result: dict[str, Any] | None = None
        self.progress = Progress()
        self.shares: tuple[int, ...] = ()
        self.hang_seconds = HANG_SECONDS
        self.holders = IndependentLeases(lambda options: Ledger(options, fence_floor))
        self.servers = ServerCoordinator(identity, fence_floor)
        self.copies = SilentCopies(independent=facts.independent)
        self.problems = Problems()
        self.unwritten = WriteProblems(self.problems)
        self._shares_at = float("-inf")

    # ------------------------------------------------------------------ sessions

    def handle_session_report(self, report: SessionReport, now: float) -> SessionReply:
        """Take in a session's report and give its orders.

        Raises:
            RefusedError: the report does not fit the job, for instance another dataset size.
        """
        self._refuse_copies()
        if self.servers.active:
            raise RefusedError("data: this job's slots belong to its parameter servers' workers")
        if self.facts.guarantee is Guarantee.UNSHARDED:
            raise RefusedError(
                "input.guarantee: Unsharded; workers that share their steps cannot each have all "
                "data: lease it with penstock.trainer.shards, or choose another guarantee"
            )
        self._open_data(report.data)
        assert self.order is not None
        if (report.committed or 0) > self.order.total_steps:
            raise RefusedError(
                f"committed: {report.committed}; the job has {self.order.total_steps} steps"
            )
        if not self.rendezvous.record(report, now):
            return self._reply(Directive.REFUSED, None, message=f"{report.member} was replaced")
        self.unwritten.hear(report.member.rank, report.troubles, now)
        self._take_audits(report)
        self._acknowledge(report, now)
        self._refuse_bad_data(report)
        self.advance(now)
        directive, group = self.rendezvous.directive(report.member)
        return self._reply(directive, group, message=self.rendezvous.waiting_message(now))

    def advance(self, now: float) -> None:
        """Look at everything anew: on each report and a few times per second."""
        self.copies.look(now)
        if self.data is None:
            self.copies.listen(now)
        self.unwritten.forget(now)
        formed = self.rendezvous.decide(now)
        leases = self._leases()
        if formed is not None and leases is not None:
            self._begin(formed, leases, now)
        if self.ledger is not None:
            self.ledger.expire(now)
        if leases is not None and self.rendezvous.training and not self.holders.active:
            leases.extend(now, self.progress.steps_per_second(now, 30.0))
        self._balance(now)
        if self.servers.active:
            self._advance_servers(now)

    def _refuse_copies(self) -> None:
        if self.copies.refusal is not None:
            raise RefusedError(self.copies.refusal.message)

    def _open_data(self, data: DataSpec) -> None:
        if self.data is not None:
            self._require_same(data)
            return
        slots = data.slots_per_step or self.facts.slots_per_step or DEFAULT_SLOTS_PER_STEP
        slots = min(slots, data.global_batch)
        self.data = data
        self.order = data.order(slots)
        self.rendezvous.slots_per_step = slots
        if self.ledger is None:
            self.ledger = Ledger(self._options(self.order), self.fence_floor)

    def _require_same(self, data: DataSpec) -> None:
        assert self.data is not None
        for name in DataSpec.model_fields:
            ours, theirs = getattr(self.data, name), getattr(data, name)
            if ours != theirs:
                raise RefusedError(
                    f"data.{name}: {theirs}; the job began with {ours}, and the order of samples "
                    "stays as it was for the whole job"
                )

    def _refuse_bad_data(self, report: SessionReport) -> None:
        """No group can finish a step of which a part is in quarantine and must not be skipped."""
        at_work = report.phase in (Phase.READY, Phase.TRAINING)
        if self.ledger is None or self.order is None or not at_work:
            return
        if problem := unusable(self.ledger, self.order):
            raise RefusedError(problem)

    def _options(self, order: SampleOrder) -> LedgerOptions:
        """A weaker guarantee changes something only for holders that lease on their own.

        A group's model takes its history along, so that it always has each sample exactly once.
        """
        alone = self.holders.active and not self.servers.active  # servers take each slot once
        weaker = alone and self.facts.guarantee is Guarantee.AT_MOST_ONCE
        return LedgerOptions(
            total_slots=order.total_slots,
            lease_seconds=self.facts.lease_seconds,
            guarantee=Guarantee.AT_MOST_ONCE if weaker else Guarantee.EXACTLY_ONCE,
            skip_bad=self.facts.skip_bad,
        )

    def _leases(self) -> GroupLeases | None:
        """The ledger as the present group's; None before there is one."""
        group = self.rendezvous.group
        if group is None or self.ledger is None or self.order is None:
            return None
        return GroupLeases(self.ledger, self.order, group)

    def _begin(self, group: Group, leases: GroupLeases, now: float) -> None:
        leases.begin()
        epoch = group.start_step // leases.order.steps_per_epoch
        for audited in [number for number in self.audits if number >= epoch]:
            del self.audits[audited]
        self.shares = group.shares
        self.progress.note(now, group.start_step)

    def _acknowledge(self, report: SessionReport, now: float) -> None:
        leases = self._leases()
        if leases is None or report.generation != leases.group.number:
            return
        committed = report.committed if self.rendezvous.training else None
        if committed is not None and leases.acknowledge(committed, now):
            self.progress.note(now, committed)
        if report.failed is not None:
            leases.blame(holder_name(report.member.rank, report.member.incarnation), report.failed)
            self.rendezvous.skipped = tuple(leases.ledger.quarantine)

    @property
    def lease_stop_step(self) -> int:
        """Steps below it may be committed by the group."""
        leases = self._leases()
        return leases.stop_step if leases is not None else 0

    def _balance(self, now: float) -> None:
        group = self.rendezvous.group
        if group is None or now - self._shares_at < SHARES_EVERY_SECONDS:
            return
        self._shares_at = now
        if len(self.shares) != len(group.members):  # a group that was adopted, not formed by us
            self.shares = group.shares
        speeds = [self.rendezvous.slot_seconds(m) for m in self.rendezvous.group_members]
        better = improved(self.rendezvous.slots_per_step, self.shares, speeds)
        if better is not None:
            self.shares = better
            self.rendezvous.revision += 1

    def _take_audits(self, report: SessionReport) -> None:
        for audit in report.audits:
            self.audits[audit.epoch] = audit
        if report.result is not None:
            self.result = report.result

    def _reply(self, directive: Directive, group: Group | None, message: str = "") -> SessionReply:
        order = self.order
        if directive is Directive.WAIT and self._others_finished():
            directive = Directive.FINISH
        return SessionReply(
            trainer=self.identity,
            revision=self.rendezvous.revision,
            directive=directive,
            group=group,
            slots_per_step=order.slots_per_step if order else DEFAULT_SLOTS_PER_STEP,
            lease_seconds=self.facts.lease_seconds,
            lease_stop_step=self.lease_stop_step if group is not None else 0,
            shares=self.shares if group is not None else (),
            audited_epochs=self._audited(),
            message=message,
        )

    def _others_finished(self) -> bool:
        """Whether a model that has seen everything exists: there is nothing left to do."""
        if self.ledger is None or not self.ledger.finished:
            return False
        done = (Phase.FINISHED, Phase.CLOSED)
        members = self.rendezvous.members.present
        return (
            self.result is not None
            or self.rendezvous.members.any_closed
            or any(member.report.phase in done for member in members)
        )

    def _audited(self) -> int:
        epoch = 0
        while epoch in self.audits:
            epoch += 1
        return epoch

    # ------------------------------------------------------------------ holders on their own

    def grant_lease(self, request: LeaseRequest, now: float) -> LeaseReply:
        """Serve a holder that works on its own (no group): acknowledgements in, a lease out.

        Raises:
            RefusedError: the data differ from the job's, or a group trains on the same ledger.
            LedgerError: an acknowledgement cannot be true, or the epoch cannot end.
        """
        self._refuse_copies()
        if self.rendezvous.members.present:
            raise RefusedError(
                "holder: this job's slots belong to its sessions; lease none of them"
            )
        if self.servers.active:
            raise RefusedError(
                "holder: this job's slots belong to the workers of its parameter servers"
            )
        self.holders.active = True
        self._open_data(request.data)
        assert self.ledger is not None
        assert self.order is not None
        return self.holders.serve(request, self.ledger, self.order, self.facts.guarantee, now)

    # ------------------------------------------------------------------ parameter servers

    def handle_server_report(self, report: ServerReport, now: float) -> ServerReply | None:
        """Take in a parameter server's report and give its orders; None: it is to ask again."""
        accepted = self.servers.record_server(report, now)
        if accepted and self.data is None and report.data is not None:
            self._open_data(report.data)  # we have forgotten: a model is trained on them
        self._advance_servers(now)
        self._note_updates(report, now)
        if self.servers.recovering:
            return None
        return self.servers.answer_server(report, accepted, now)

    def handle_worker_report(self, report: WorkerReport, now: float) -> WorkerReply | None:
        """Take in the report of a worker of parameter servers; None: it is to ask again.

        Raises:
            RefusedError: another model or other data, or the model does not fit the servers.
            LedgerError: an acknowledgement cannot be true, or the epoch cannot end.
        """
        self._refuse_copies()
        self._refuse_worker(report)
        self.servers.activate()
        self.holders.active = True
        self._open_data(report.lease.data)
        assert self.ledger is not None
        assert self.order is not None
        before = self.servers.find_worker(report.member.rank)
        if not self.servers.record_worker(report, now):
            raise RefusedError(f"{report.member} was replaced by a newer process")
        if before is not None and before.id != report.member:
            self.ledger.release(before.report.lease.holder)
        self.unwritten.hear(report.member.rank, report.troubles, now)
        self._advance_servers(now)
        if self.servers.recovering:
            return None
        if self.servers.rejection_reason:
            raise RefusedError(self.servers.rejection_reason)
        if report.result is not None:
            self.result = report.result
        request = report.lease
        if self.servers.paused:
            request = request.model_copy(update={"max_slots": 0})
        lease = self.holders.serve(request, self.ledger, self.order, Guarantee.EXACTLY_ONCE, now)
        self._advance_servers(now)
        if self.servers.paused and lease.fence is not None:  # what came back allowed a halt
            self.ledger.give_back(lease.fence)
            lease = lease.model_copy(update={"fence": None, "start": 0, "stop": 0})
        lease = lease.model_copy(update={"finished": self.servers.at_end})
        return self.servers.answer_worker(report, lease, now)

    def _refuse_worker(self, report: WorkerReport) -> None:
        if self.rendezvous.members.present:
            raise RefusedError("member: this job's slots belong to its sessions")
        if self.facts.guarantee is Guarantee.UNSHARDED:
            raise RefusedError(
                "input.guarantee: Unsharded; parameter servers take each slot once: choose another "
                "guarantee"
            )
        if report.lease.data.slots_per_step != 1:
            raise RefusedError(
                f"data.slots_per_step: {report.lease.data.slots_per_step}; with parameter servers "
                "a batch is one slot, so it must be 1"
            )
        known: ModelSpec | None = self.servers.spec
        if known is not None and (difference := known.difference(report.spec)):
            raise RefusedError(f"spec: another model than this job's: {difference}")

    def _advance_servers(self, now: float) -> None:
        servers, ledger = self.servers, self.ledger
        before = ledger.watermark if ledger is not None else 0
        servers.decide(ledger, self.data, now)
        if trouble := servers.save_error:
            self.problems.report(TRAINER_ROLE, JobReason.CHECKPOINTS_NOT_WRITTEN, trouble, now)
        else:
            self.problems.clear(TRAINER_ROLE, JobReason.CHECKPOINTS_NOT_WRITTEN)
        if ledger is None or self.order is None:
            return
        if ledger.watermark < before:
            epoch = ledger.watermark // self.order.steps_per_epoch
            self.audits = {n: audit for n, audit in self.audits.items() if n < epoch}
        self.audits.update(audits_of(self.order, servers.applied(), ledger, self.audits))
        if self.done() and not self.latecomers(now):
            servers.finish(now)

    def farewell(self, now: float) -> bool:
        """Whether all who wait for orders know that the job is done."""
        return not self.servers.active or self.servers.farewell(now)

    def _note_updates(self, report: ServerReport, now: float) -> None:
        """One server's count of updates is that of the whole job: every push goes to all."""
        layout = self.servers.layout
        first = layout is not None and layout.servers[0].id == report.server
        if first and self.servers.serving and report.layout == layout:
            self.progress.note(now, report.applied.slots)

    # ------------------------------------------------------------------ agents and pods

    def handle_agent_report(self, report: AgentReport, now: float) -> AgentReply:
        """Take in an agent's report."""
        key = (report.role, report.rank)
        known = self.agents.get(key)
        if known is not None and known.report.incarnation > report.incarnation:
            return AgentReply(trainer=self.identity, superseded=True)
        if len(self.agents) >= MAX_AGENTS and known is None:
            raise RefusedError(f"{MAX_AGENTS} agents have reported; a job has no more")
        self.agents[key] = AgentState(report, now)
        if report.role == Role.WORKER:
            self._watch_copies(report, now)
        if report.role == Role.WORKER and report.state is ProcessState.EXITED:
            self.rendezvous.mark_ended(report.rank, report.incarnation)
        if report.role == Role.WORKER and self.ledger is not None and self.holders.active:
            self.holders.look_after(report, self.ledger, now)
        if report.role == Role.WORKER and self.servers.active:
            if report.state is ProcessState.EXITED:
                self.servers.end_worker(report.rank, report.incarnation)
            else:
                self.servers.keep_worker_alive(report.rank, report.incarnation, now)
        hung = (
            self.rendezvous.find_hung(now, self.hang_seconds) if report.role == Role.WORKER else {}
        )
        refusal, told = self.copies.refusal, self.copies.told
        return AgentReply(
            trainer=self.identity,
            hung_seconds=hung.get(report.rank),
            refused=f"{refusal.reason}: {refusal.message}" if refusal and told else "",
            undecided=refusal is not None and not told,
        )

    def _watch_copies(self, report: AgentReport, now: float) -> None:
        self.copies.hear(report, now)
        if report.exit_code == 0 and self.data is None:
            there = self.rendezvous.expected
            if there is None:  # nobody knows: those who came
                there = frozenset(rank for role, rank in self.agents if role == Role.WORKER)
            self.copies.ended_well(report, len(there | {report.rank}))

    def usage(self, now: float) -> dict[tuple[str, int], Usage]:
        """What each rank uses, from reports of the last `FRESH_SECONDS`."""
        return {
            key: agent.report.usage
            for key, agent in self.agents.items()
            if agent.report.usage is not None and agent.runs(now)
        }

    def stragglers(self) -> dict[int, float]:
        """Members of the group that are much slower than the others, by rank."""
        times = {
            member.id.rank: member.report.slot_seconds
            for member in self.rendezvous.group_members
            if member is not None and member.report.slot_seconds
        }
        return stragglers(times)

    def slots_by_rank(self) -> dict[int, int]:
        """How many slots of each step are every rank's now."""
        group = self.rendezvous.group
        if group is None or len(self.shares) != len(group.members):
            return {}
        ranks = (member.id.rank for member in group.members)
        return dict(zip(ranks, self.shares, strict=True))

    def learn(self, facts: JobFacts) -> None:
        """The job's spec was read (again); what is fixed for the whole job stays as it began."""
        self.facts = facts
        self.copies.independent = facts.independent
        if self.ledger is not None:
            self.ledger.options = replace(self.ledger.options, skip_bad=facts.skip_bad)
        self.rendezvous.min_workers = facts.min_workers
        self.servers.suspend(facts.suspended)

    def balance_shares(self, wanted: bool) -> None:
        """Whether members of a group get shares of a step by their speed."""
        self.rendezvous.balance = wanted

    def weigh_shares(self, weights: Mapping[int, float]) -> None:
        """Shares by rank, as a plan has them, for the groups to come."""
        self.rendezvous.weights = dict(weights)

    # ------------------------------------------------------------------ figures and state

    def committed_steps(self) -> int:
        """Steps that the surviving model has seen, as far as it was reported."""
        if self.ledger is None or self.order is None:
            return 0
        return self.ledger.watermark // self.order.slots_per_step

    def world_size(self, now: float) -> int:
        """Workers that train now."""
        if self.servers.active:
            return self.servers.count_training(now)
        group = self.rendezvous.group
        return len(group.members) if group and self.rendezvous.training else 0

    def done(self) -> bool:
        """Whether the data are exhausted and every session has said that it is through."""
        if self.copies.refusal is not None:
            return False
        if self.data is None or self.ledger is None:
            return self._programs_ended()
        if self.servers.active:
            return self.ledger.finished and self.servers.workers_done
        if self.holders.active:
            return self.holders.finished(self.ledger) and self._programs_ended()
        if not self.ledger.finished:
            return False
        through = (Phase.CLOSED, Phase.LEAVING)
        there = self.rendezvous.members.present
        return self.rendezvous.members.any_closed and all(m.report.phase in through for m in there)

    def latecomers(self, now: float) -> set[int]:
        """Ranks of workers that live and have not asked for a group yet.

        Their programs are still starting. Once the job is done they have to be told, by somebody
        who is still there when they ask.
        """
        live, ended = set(self.running), set()
        for (role, rank), agent in self.agents.items():
            if role != Role.WORKER:
                continue
            process = (rank, agent.report.incarnation)
            if agent.runs(now):
                live.add(process)
            elif agent.report.state is ProcessState.EXITED:
                ended.add(process)
        asked = self.servers if self.servers.active else self.rendezvous.members
        return {rank for rank, number in live - ended if not asked.has_asked(rank, number)}

    def any_worker_runs(self, now: float) -> bool:
        """Whether some worker's agent said a moment ago that its program runs."""
        return any(
            agent.runs(now) for (role, _), agent in self.agents.items() if role == Role.WORKER
        )

    def _programs_ended(self) -> bool:
        """For programs that do not use the API: every worker that is expected has ended well."""
        workers = {
            rank: agent.report for (role, rank), agent in self.agents.items() if role == Role.WORKER
        }
        expected = self.rendezvous.expected or frozenset()
        return (
            bool(workers)
            and expected <= workers.keys()
            and all(
                report.state is ProcessState.EXITED and report.exit_code == 0
                for report in workers.values()
            )
        )

    def summary(self, now: float) -> Summary:
        """The figures of the job so far."""
        audits = self.audits.values()
        servers = self.servers
        committed = self.committed_steps()
        return Summary(
            data=self.data,
            total_steps=self.order.total_steps if self.order else 0,
            committed_steps=committed,
            epoch=committed // self.order.steps_per_epoch if self.order else 0,
            world_size=self.world_size(now),
            training=self.rendezvous.training or (servers.active and not servers.paused),
            group=self.rendezvous.group.number if self.rendezvous.group else 0,
            samples_seen=sum(audit.samples_seen for audit in audits),
            samples_lost=sum(audit.samples_lost for audit in audits),
            samples_repeated=sum(audit.samples_repeated for audit in audits),
            epochs_audited=len(self.audits),
            quarantined=self.ledger.quarantine if self.ledger else [],
            stragglers=self.stragglers(),
            result=self.result,
            message=servers.message(now)
            if servers.active
            else self.rendezvous.waiting_message(now),
            alone=self.copies.alone(now),
            servers=servers.summary(now) if servers.active else None,
        )

    def extra(self) -> dict[str, Any] | None:
        """What has to survive beside the ledger's own state; None before the data are known."""
        if self.data is None or self.order is None:
            return None
        group = self.rendezvous.group
        return {
            "data": self.data.model_dump(mode="json"),
            "slots_per_step": self.order.slots_per_step,
            "group": group.number if group else 0,
            "holders": self.holders.active,
            "servers": self.servers.extra(),
            "audits": [audit.model_dump() for audit in self.audits.values()],
            "result": self.result,
        }

    def recover(self, ledger: Ledger, extra: Mapping[str, Any], now: float) -> None:
        """Begin from a saved state: ranks of an earlier group get time to report to us."""
        try:
            data = DataSpec.model_validate(extra["data"])
            audits = [EpochAudit.model_validate(audit) for audit in extra["audits"]]
            slots, number = int(extra["slots_per_step"]), int(extra["group"])
            self.servers.recover(extra.get("servers"))
        except (KeyError, ValueError, TypeError) as error:
            raise SnapshotError(f"the saved state is damaged: {error!r}") from error
        self.data, self.order, self.ledger = data, data.order(slots), ledger
        self.rendezvous.skipped = tuple(ledger.quarantine)
        self.rendezvous.slots_per_step = slots
        self.rendezvous.continue_from(number)
        self.audits = {audit.epoch: audit for audit in audits}
        self.result = extra.get("result")
        self.await_survivors(now)

    def await_survivors(self, now: float) -> None:
        """Form no group from nothing for a while: this job may have been running before us."""
        self.rendezvous.recovering_until = now + RECOVERY_SECONDS
        self.servers.await_survivors()

    def ledger_options(self, extra: Mapping[str, Any]) -> LedgerOptions:
        """The options of the ledger that a saved state belongs to."""
        try:
            data = DataSpec.model_validate(extra["data"])
            self.holders.active = bool(extra["holders"])
            if extra.get("servers") is not None:
                self.servers.activate()
            return self._options(data.order(int(extra["slots_per_step"])))
        except (KeyError, ValueError, TypeError) as error:
            raise SnapshotError(f"the saved state is damaged: {error!r}") from error
