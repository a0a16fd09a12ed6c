"""What agents say of their processes' steps, for `standstill.detector`, and what follows.

A problem of the job's (`TrainingStandsStill`) names the worker and its node, the process, and where
it is; the whole stack of every process stands in its pod's log. Where the job asks for it
(`standstill.response`), its agent is told to end it, and that is said for a while, too
(`HungProcessEnded`). An order is repeated until the agent's reports have the process no more.

A session that holds up the others for `ControlSettings.hang_seconds` is ended in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.base.enums import OnHang
from penstock.crds.conditions import JobReason
from penstock.job.protocol import AgentReport, EndHung, ProcessState
from penstock.trainer.control.model.job import JobFacts
from penstock.trainer.control.model.problems import Problems
from penstock.trainer.standstill.detector import Detector, Heard, Standing
from penstock.trainer.standstill.response import Hang, Step, judge
from penstock.trainer.standstill.stack import Frame, Kind, Look

ORDER_SECONDS: Final = 30.0
"""How long an agent is told to end a process, if it does not; then it is judged anew."""
SHOWN_SECONDS: Final = 600.0
"""How long a job says that a process of it was ended."""

_STILL: Final = JobReason.TRAINING_STANDS_STILL
_ENDED: Final = JobReason.HUNG_PROCESS_ENDED


@dataclass(frozen=True, slots=True)
class _Pod:
    incarnation: int
    node: str
    ends_hung: bool


@dataclass(frozen=True, slots=True)
class _Order:
    said: EndHung
    incarnation: int
    since: float


class Standstills:
    """Of one job."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._detector = Detector()
        self._told: dict[str, str] = {}
        self._pods: dict[int, _Pod] = {}
        self._orders: dict[int, _Order] = {}
        self._number = 0
        self._ends: dict[int, int] = {}  # by rank: how often a process of it was ended
        self._shown: dict[str, float] = {}  # since when it is said that one was

    @property
    def look(self) -> int:
        """Which look at the stacks of all processes is asked for; 0: none."""
        return self._detector.look

    def order_for(self, report: AgentReport) -> EndHung | None:
        """Which process an agent is to end, if any."""
        order = self._orders.get(report.rank)
        wanted = order is not None and order.incarnation == report.incarnation
        return order.said if order is not None and wanted and report.ends_hung else None

    def hear(self, report: AgentReport, now: float) -> None:
        """Take in an agent's report on a worker."""
        trained = [one for one in report.processes or () if one.seconds is not None]
        runs = report.state is ProcessState.RUNNING and not report.draining
        self._pods[report.rank] = _Pod(report.incarnation, report.node, report.ends_hung)
        heard = {
            one.pid: Heard(one.idle, one.world_size, one.queued, one.used)
            for one in trained
            if runs
        }
        self._detector.hear(report.rank, heard, now)
        order = self._orders.get(report.rank)
        if order is not None and not (
            order.incarnation == report.incarnation and order.said.pid in heard
        ):
            del self._orders[report.rank]
        if report.shown:
            shown = {
                one.pid: Look(
                    one.state,
                    one.cpu_seconds,
                    tuple(Frame(each.path, each.line, each.function) for each in one.frames),
                    one.tree_cpu_seconds,
                    one.tree_io_bytes,
                    one.wakeups,
                    one.sleeps_in,
                    one.wanders,
                )
                for one in report.shown
            }
            self._detector.show(report.rank, report.look, shown)

    def forget(self, rank: int, incarnation: int) -> None:
        """A worker's pod has ended."""
        known = self._pods.get(rank)
        if known is not None and known.incarnation <= incarnation:
            del self._pods[rank]
            self._orders.pop(rank, None)
            self._detector.forget(rank)

    def advance(
        self,
        now: float,
        facts: JobFacts,
        *,
        holds_steps: bool,
        launched: bool = False,
        waiting: frozenset[int] | None = None,
    ) -> bool:
        """Let time pass.

        Args:
            now: seconds of the trainer's clock.
            facts: what the job's spec says.
            holds_steps: nobody is to take a step now.
            launched: agents launch the processes, as ranks of one world.
            waiting: ranks that wait for a group that is being formed; None: none is.

        Returns: whether that world is to begin anew, without a process that is ended.
        """
        if not holds_steps:
            self._detector.advance(now, waiting)
        restarts, why = self._respond(facts, launched, now)
        found = {
            f"worker-{one.rank}": f"{self._name(one)}; the stacks of all processes are in their "
            f"pods' logs{why.get(one.key, '')}"
            for one in self._detector.standing
        }
        for source, text in found.items():
            if self._told.get(source) != text:
                self._problems.report(source, _STILL, text, now)
        for source in self._told.keys() - found.keys():
            self._problems.clear(source, _STILL)
        self._told = found
        for source in [one for one, since in self._shown.items() if now - since > SHOWN_SECONDS]:
            del self._shown[source]
            self._problems.clear(source, _ENDED)
        return restarts and launched

    # ------------------------------------------------------------------ inside

    def _respond(
        self, facts: JobFacts, launched: bool, now: float
    ) -> tuple[bool, dict[tuple[int, int], str]]:
        """Do what the job asks for; whether processes are started again, and who is left why."""
        restarts = False
        left: dict[tuple[int, int], str] = {}
        overdue = [rank for rank, one in self._orders.items() if now - one.since > ORDER_SECONDS]
        for rank in overdue:
            del self._orders[rank]
        for one in self._detector.standing:
            pod = self._pods.get(one.rank)
            if pod is None or one.rank in self._orders:
                continue
            hang = Hang(
                one,
                whole_world=launched and len(self._detector.standing) >= one.world_size,
                able=pod.ends_hung,
                ended=self._ends.get(one.rank, 0),
                failures=facts.rank_failures.get(one.rank, 0),
            )
            verdict = judge(hang, facts.hang_policy, now)
            if verdict.step is Step.LOOK:
                self._detector.look_again(now)
            elif verdict.step is Step.END:
                restarts |= not self._end(one, pod, facts, now).replace
            if verdict.why:
                left[one.key] = f"; it is not ended: {verdict.why}"
        return restarts, left

    def _end(self, one: Standing, pod: _Pod, facts: JobFacts, now: float) -> EndHung:
        """Tell its agent to; of those who all wait for one another, no pod is known to be bad."""
        policy = facts.hang_policy
        replace = policy.response is OnHang.REPLACE and one.kind is not Kind.COLLECTIVE
        self._number += 1
        times = self._ends[one.rank] = self._ends.get(one.rank, 0) + 1
        what = "its pod is replaced" if replace else "started again in its pod"
        why = f"{self._name(one)}; it is ended, and {what} ({times} of at most {policy.most} times)"
        said = EndHung(number=self._number, pid=one.pid, replace=replace, why=why[:2048])
        self._orders[one.rank] = _Order(said, pod.incarnation, now)
        source = f"worker-{one.rank}"
        self._shown[source] = now
        self._problems.report(source, _ENDED, why, now)
        return said

    def _name(self, one: Standing) -> str:
        pod = self._pods.get(one.rank)
        on = f"on node {pod.node}, " if pod is not None and pod.node else ""
        return f"{on}{one}"
