"""What agents say of their processes' steps, for `standstill.detector`, and what it finds, told.

A problem of the job's (`TrainingStandsStill`) names the worker and its node, the process, and where
it is; the whole stack of every process stands in its pod's log. Nothing is ended by this:
`ControlSettings.hang_seconds` says when that is.
"""

from __future__ import annotations

from typing import Final

from penstock.crds.conditions import JobReason
from penstock.job.protocol import AgentReport, ProcessState
from penstock.trainer.control.model.problems import Problems
from penstock.trainer.standstill.detector import Detector, Heard
from penstock.trainer.standstill.stack import Frame, Look

_REASON: Final = JobReason.TRAINING_STANDS_STILL


class Standstills:
    """Of one job."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._detector = Detector()
        self._told: set[str] = set()
        self._where: dict[int, tuple[int, str]] = {}  # of pods: incarnation, and name of the node

    @property
    def look(self) -> int:
        """Which look at the stacks of all processes is asked for; 0: none."""
        return self._detector.look

    def hear(self, report: AgentReport, now: float) -> None:
        """Take in an agent's report on a worker."""
        trained = [one for one in report.processes or () if one.seconds is not None]
        runs = report.state is ProcessState.RUNNING and not report.draining
        self._where[report.rank] = report.incarnation, report.node
        heard = {one.pid: Heard(one.idle, one.world_size) for one in trained if runs}
        self._detector.hear(report.rank, heard, now)
        if report.shown:
            shown = {
                one.pid: Look(
                    one.state,
                    one.cpu_seconds,
                    tuple(Frame(each.path, each.line, each.function) for each in one.frames),
                )
                for one in report.shown
            }
            self._detector.show(report.rank, report.look, shown)

    def forget(self, rank: int, incarnation: int) -> None:
        """A worker's pod has ended."""
        known = self._where.get(rank)
        if known is not None and known[0] <= incarnation:
            del self._where[rank]
            self._detector.forget(rank)

    def advance(self, now: float, *, forms_group: bool) -> None:
        """Let time pass; ``forms_group``: nobody is to take a step now."""
        if not forms_group:
            self._detector.advance(now)
        found = {f"worker-{one.rank}": one for one in self._detector.standing}
        for source, one in found.items():
            _, node = self._where.get(one.rank, (0, ""))
            on = f"on node {node}, " if node else ""
            text = f"{on}{one}; the stacks of all processes are in their pods' logs"
            if source not in self._told:
                self._problems.report(source, _REASON, text, now)
        for source in self._told - set(found):
            self._problems.clear(source, _REASON)
        self._told = set(found)
