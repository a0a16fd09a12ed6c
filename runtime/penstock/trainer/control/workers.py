"""Workers as their agents and pods tell of them, whatever their programs do."""

from __future__ import annotations

from penstock.base.enums import Role
from penstock.job.protocol import AgentReply, AgentReport, ProcessState
from penstock.parameter_server.control.events import PodsKnown as ServerPodsKnown
from penstock.trainer.control.model.events import PodsKnown, Superseded
from penstock.trainer.control.model.state import State
from penstock.trainer.control.step_context import StepContext


def record_agent(turn: StepContext, report: AgentReport) -> None:
    """Take in an agent's report. Raises RefusedError where there are too many."""
    state, now = turn.state, turn.now
    if not state.agents.record(report, now):
        turn.instructions.append(Superseded())
        return
    if report.role != Role.WORKER:
        return
    ended = report.state is ProcessState.EXITED
    _watch_copies(state, report, now)
    state.standstills.hear(report, now)
    if ended:
        _mark_ended(state, report.rank, report.incarnation)
    if state.ledger is not None and state.holders.active:
        state.holders.look_after(report, state.ledger, now)
    if state.servers.active:
        if ended:
            state.servers.end_worker(report.rank, report.incarnation)
        else:
            state.servers.keep_worker_alive(report.rank, report.incarnation, now)


def record_pods(turn: StepContext, pods: PodsKnown) -> None:
    """The cluster's pods are these now."""
    state = turn.state
    state.expect(pods.expected)
    state.agents.running_pods = pods.running
    for rank, incarnation in pods.ended:
        state.standstills.forget(rank, incarnation)
        _mark_ended(state, rank, incarnation)
        state.servers.end_worker(rank, incarnation)
    state.servers.take_in(ServerPodsKnown(pods.servers, pods.ended_servers), turn.now)


def answer_agent(state: State, report: AgentReport, now: float) -> AgentReply:
    """What is wanted of an agent."""
    if state.agents.is_superseded(report):
        return AgentReply(trainer=state.identity, superseded=True)
    hung: dict[int, float] = {}
    if report.role == Role.WORKER:
        hung = state.rendezvous.find_hung(now, state.settings.hang_seconds)
    refusal, shown = state.copies.refusal, state.copies.shown
    return AgentReply(
        trainer=state.identity,
        hung_seconds=hung.get(report.rank),
        refused=f"{refusal.reason}: {refusal.message}" if refusal and shown else "",
        undecided=refusal is not None and not shown,
        look=state.standstills.look if report.looks else 0,
        end_hung=state.standstills.order_for(report) if report.role == Role.WORKER else None,
    )


def _mark_ended(state: State, rank: int, incarnation: int) -> None:
    state.rendezvous.mark_ended(rank, incarnation)
    state.replica_groups.mark_ended(rank, incarnation)


def _watch_copies(state: State, report: AgentReport, now: float) -> None:
    state.copies.hear(report, now)
    if report.exit_code == 0 and state.data is None:
        there = state.expected
        if there is None:  # nobody knows: those who came
            there = frozenset(rank for rank, _ in state.agents.workers())
        state.copies.judge_end(report, len(there | {report.rank}), now)
