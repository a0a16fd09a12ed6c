"""What the GPUs of each job do, as metrics, of the samples that this Brain took in lately.

Of several Brains each shows the jobs whose samples came to it. A job that falls silent, or ends, is
not shown for long: a figure that stays as it was looks like a GPU at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.base.enums import Role
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.model.gpu_use import GpuUse
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs

SHOWN_SECONDS: Final = 60.0


class GpuGauges:
    """The newest figures, by job and role; jobs without GPUs take no room."""

    def __init__(self, database: Database, metrics: BrainMetrics) -> None:
        self._database = database
        self._metrics = metrics
        self._newest: dict[str, tuple[float, Mapping[Role, GpuUse]]] = {}

    def note(self, uid: str, uses: Mapping[Role, GpuUse], now: float) -> None:
        """A job's newest sample says this; nothing where it measures no GPU."""
        self._newest.pop(uid, None)
        if uses:
            self._newest[uid] = (now, uses)

    async def show(self, now: float) -> None:
        """Set the gauges to what was heard lately, and forget the rest."""
        oldest = now - SHOWN_SECONDS
        self._newest = {uid: one for uid, one in self._newest.items() if one[0] >= oldest}
        uses = {uid: of_roles for uid, (_, of_roles) in self._newest.items()}
        names: Mapping[str, tuple[str, str]] = {}
        if uses:
            async with self._database.read() as session:
                names = await Jobs(self._database, session).active_names(list(uses))
        gauges = self._metrics.gpu_gauges
        for gauge in gauges.values():
            gauge.clear()
        for uid, (namespace, name) in names.items():
            for role, use in uses[uid].items():
                for figure, gauge in gauges.items():
                    if (value := getattr(use, figure)) is not None:
                        gauge.labels(name, namespace, role.value).set(value)
