"""The filling of a layout with parameters by the chief, as the trainer follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.job.protocol import MemberId
from penstock.parameter_server.control.records.workers import WorkerRegistry
from penstock.parameter_server.protocol import WorkerReport

FILLER_SILENT_SECONDS: Final = 60.0
"""How long a chief that fills a layout may say nothing, where no agent speaks for it."""


@dataclass
class LayoutInitialization:
    """The filling of a layout by the chief."""

    number: int
    chief: MemberId
    checkpoint: int | None  # slots; None: afresh
    told: int | None = None  # revision at which the chief was told: all servers know of it

    def is_for(self, report: WorkerReport) -> bool:
        """Whether the sender of a report has yet to do it."""
        return (
            self.told is not None and report.member == self.chief and report.filled != self.number
        )

    def is_gone(self, workers: WorkerRegistry, now: float) -> bool:
        """Whether the chief that should do it is there no more."""
        filler = workers.get(self.chief)
        gone = filler is None or filler.ended or filler.closed
        return filler is None or gone or now - filler.seen >= FILLER_SILENT_SECONDS

    def find_failure(self, workers: WorkerRegistry, late: bool, now: float) -> str:
        """Why it will come to nothing; empty: it may yet succeed."""
        filler = workers.get(self.chief)
        if filler is None or self.is_gone(workers, now):
            return f"{self.chief} went away"
        report = filler.report
        if report.failed and self.told is not None and report.seen_revision >= self.told:
            return f"{self.chief}: {report.failed}"
        return f"{self.chief} was too slow" if late else ""
