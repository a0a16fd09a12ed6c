"""Which orders are in force, and whether a server's report says that it carries them out.

Every change of anybody's orders has a revision, which grows; a report names the newest one that its
sender has carried out. So a report that was late, or is of an earlier time at which the same order
was in force, is never taken for an answer to the present order.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.parameter_server.protocol import ServerReport


@dataclass
class OrderRevisions:
    """The revisions of one trainer."""

    revision: int
    ordered: int = 0  # revision of the newest order to servers
    ordered_at: float = 0.0
    placed: int = 0  # revision from which on the owners should hold the present layout

    def bump(self, now: float) -> None:
        """Orders to servers have changed."""
        self.revision += 1
        self.ordered, self.ordered_at = self.revision, now

    def bump_layout(self, now: float) -> None:
        """Another layout is the present one."""
        self.bump(now)
        self.placed = self.ordered

    def notify(self) -> int:
        """Workers have something to hear; the revision at which they have."""
        self.revision += 1
        return self.revision

    def acknowledged(self, report: ServerReport) -> bool:
        """Whether the report was made under the present orders."""
        return report.seen_revision >= self.ordered

    def acknowledged_layout(self, report: ServerReport) -> bool:
        """Whether the report was made since the present layout is the present one."""
        return report.seen_revision >= self.placed
