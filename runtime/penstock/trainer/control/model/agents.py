"""The newest report of each agent, and what it says of the programs in a job's pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Role
from penstock.job.protocol import AgentReport, ProcessState, TrainingProcess, Usage
from penstock.trainer.control.model.job import RefusedError

MAX_AGENTS: Final = 16384
FRESH_SECONDS: Final = 10.0
"""An agent that has not reported for this long is not known to live."""


@dataclass
class AgentState:
    """The newest report of one agent."""

    report: AgentReport
    seen: float

    def runs(self, now: float) -> bool:
        """Whether it said a moment ago that its program runs."""
        running = self.report.state is ProcessState.RUNNING
        return running and now - self.seen <= FRESH_SECONDS


class AgentRegistry:
    """The agents of one job, by role and rank, and its workers' pods."""

    def __init__(self) -> None:
        self.agents: dict[tuple[str, int], AgentState] = {}
        self.running_pods: frozenset[tuple[int, int]] = frozenset()
        """Of workers: rank and incarnation."""

    def record(self, report: AgentReport, now: float) -> bool:
        """Take in a report; False when a newer incarnation of the rank has reported.

        Raises:
            RefusedError: there are more agents than a job has.
        """
        if self.is_superseded(report):
            return False
        key = (report.role, report.rank)
        if len(self.agents) >= MAX_AGENTS and key not in self.agents:
            raise RefusedError(f"{MAX_AGENTS} agents have reported; a job has no more")
        self.agents[key] = AgentState(report, now)
        return True

    # ------------------------------------------------------------------ questions

    def is_superseded(self, report: AgentReport) -> bool:
        """Whether a newer incarnation of the rank has reported."""
        known = self.agents.get((report.role, report.rank))
        return known is not None and known.report.incarnation > report.incarnation

    def workers(self) -> Iterator[tuple[int, AgentState]]:
        """The agents of workers, each with its rank."""
        return ((rank, each) for (role, rank), each in self.agents.items() if role == Role.WORKER)

    def usage(self, now: float) -> dict[tuple[str, int], Usage]:
        """What each rank uses, from reports of the last `FRESH_SECONDS`."""
        return {
            key: agent.report.usage
            for key, agent in self.agents.items()
            if agent.report.usage is not None and agent.runs(now)
        }

    def processes(self, now: float) -> dict[tuple[int, int], tuple[TrainingProcess, ...]]:
        """What the processes of live workers say, by the worker's rank and incarnation."""
        return {
            (rank, agent.report.incarnation): agent.report.processes
            for rank, agent in self.workers()
            if agent.report.processes and agent.runs(now)
        }

    def any_worker_runs(self, now: float) -> bool:
        """Whether some worker's agent said a moment ago that its program runs."""
        return any(agent.runs(now) for _, agent in self.workers())

    def find_latecomers(self, has_asked: Callable[[int, int], bool], now: float) -> set[int]:
        """Ranks of workers that live and have not asked for anything yet.

        Args:
            has_asked: whether a process, by rank and incarnation, has.
            now: seconds of the trainer's clock.
        """
        live, ended = set(self.running_pods), set()
        for rank, agent in self.workers():
            process = (rank, agent.report.incarnation)
            if agent.runs(now):
                live.add(process)
            elif agent.report.state is ProcessState.EXITED:
                ended.add(process)
        return {rank for rank, number in live - ended if not has_asked(rank, number)}

    def all_ended_well(self, expected: frozenset[int]) -> bool:
        """Whether every worker that is expected, and every other one, has ended well."""
        reports = {rank: agent.report for rank, agent in self.workers()}
        return (
            bool(reports)
            and expected <= reports.keys()
            and all(
                report.state is ProcessState.EXITED and report.exit_code == 0
                for report in reports.values()
            )
        )
