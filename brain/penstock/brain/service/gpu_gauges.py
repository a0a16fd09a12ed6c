"""What the GPUs of each job do, as metrics, of the samples that this Brain took in lately."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.base.enums import Role
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.model.gpu_use import GpuUse
from penstock.brain.service.heard_lately import HeardLately
from penstock.brain.store.database import Database


class GpuGauges:
    """The newest figures, by job and role; jobs without GPUs take no room."""

    def __init__(self, database: Database, metrics: BrainMetrics) -> None:
        self._metrics = metrics
        self._heard: HeardLately[Mapping[Role, GpuUse]] = HeardLately(database)

    def note(self, uid: str, uses: Mapping[Role, GpuUse], now: float) -> None:
        """A job's newest sample says this; nothing where it measures no GPU."""
        if uses:
            self._heard.note(uid, uses, now)
        else:
            self._heard.drop(uid)

    async def show(self, now: float) -> None:
        """Set the gauges to what was heard lately, and forget the rest."""
        heard = await self._heard.recent(now)
        gauges = self._metrics.gpu_gauges
        for gauge in gauges.values():
            gauge.clear()
        for namespace, name, uses in heard:
            for role, use in uses.items():
                for figure, gauge in gauges.items():
                    if (value := getattr(use, figure)) is not None:
                        gauge.labels(name, namespace, role.value).set(value)
