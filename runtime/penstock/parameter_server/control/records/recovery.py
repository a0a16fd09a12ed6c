"""What a trainer that was restarted finds out from reports, before it gives any order.

Until it knows, nobody is told anything: whatever it said could be wrong. A layout is taken up once
every owner of the newest one has reported or is known to be lost, and no worker knows a newer one.
If that takes too long, what is known has to do: missing owners are then lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.parameter_server.control.records.servers import ServerRegistry
from penstock.parameter_server.control.records.timeouts import Timeouts
from penstock.parameter_server.control.records.workers import WorkerRegistry
from penstock.parameter_server.layout import Layout

NUMBERS_SKIPPED: Final = 1000
"""Layouts are numbered so far above those that are heard of: an earlier trainer may have ordered
some that nobody remembers."""


@dataclass
class TrainerRecovery:
    """What may be left from an earlier life of the trainer."""

    timeouts: Timeouts
    number: int = 0  # the highest number of a layout that was ever heard of
    present: int = 0  # that of the layout that was served last, as far as was written down
    expected: bool = False  # this job may have been running before this life
    began: float | None = None  # when the first report came
    ours: bool = False  # a layout was served in this life
    _heard_at: float | None = None

    def begin(self, now: float) -> None:
        """Somebody reports."""
        if self.began is None:
            self.began = now

    def hear(self, number: int, recovering: bool, now: float) -> None:
        """Somebody knows a layout of this number; 0: of none."""
        self.number = max(self.number, number)
        if number and recovering and self._heard_at is None:
            self._heard_at = now

    @property
    def awaited(self) -> bool:
        """Whether there is, or may be, a layout of an earlier life."""
        return self.expected or self._heard_at is not None

    def new_number(self) -> int:
        """A number that no layout had."""
        self.number += 1
        return self.number

    def serve(self, number: int) -> None:
        """A layout of this life is served."""
        self.present, self.ours = number, True

    def known(self, servers: ServerRegistry, workers: WorkerRegistry, now: float) -> bool:
        """Whether it is time to go on, with `newest` or without any layout."""
        if not self.awaited:
            return self.number > 0 or bool(workers.workers)  # who comes first may tell of a layout
        began = max(each for each in (self.began, self._heard_at) if each is not None)
        if now - began >= self.timeouts.recover:
            return True
        newest = self.newest(servers)
        if newest is None:
            wanted = servers.wanted(None, now)
            return servers.pods is not None and bool(wanted) and not servers.missing(wanted)
        suspected = workers.suspected_servers(now)
        told = all(
            servers.get(server.id) is not None
            or servers.is_lost(server.id, server.id in suspected, began, now)
            for server in newest.servers
        )
        at_least = max(self.present, workers.newest_layout())
        return told and bool(workers.workers) and newest.number >= at_least

    def newest(self, servers: ServerRegistry) -> Layout | None:
        """The newest layout that any server holds."""
        held = [server.report.layout for server in servers.servers.values()]
        known = [layout for layout in held if layout is not None]
        return max(known, key=lambda layout: layout.number, default=None)

    def end(self) -> None:
        """Decisions begin."""
        if self.awaited:
            self.number += NUMBERS_SKIPPED
