"""What jobs share with each other, as metrics, of the samples that this Brain took in lately."""

from __future__ import annotations

from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.model.share_figures import ShareFigures
from penstock.brain.service.heard_lately import HeardLately
from penstock.brain.store.database import Database


class ShareGauges:
    """The newest figures of each group and of its members; other jobs take no room."""

    def __init__(self, database: Database, metrics: BrainMetrics) -> None:
        self._metrics = metrics
        self._heard: HeardLately[ShareFigures] = HeardLately(database)

    def note(self, uid: str, figures: ShareFigures | None, now: float) -> None:
        """A job's newest sample says this; None where it shares with nobody."""
        if figures is None:
            self._heard.drop(uid)
        else:
            self._heard.note(uid, figures, now)

    async def show(self, now: float) -> None:
        """Set the gauges to what was heard lately, and forget the rest.

        What a group made is known to each member: the one that has heard of most is believed.
        """
        heard = await self._heard.recent(now)
        metrics = self._metrics
        for gauge in metrics.share_gauges:
            gauge.clear()
        groups: dict[tuple[str, str], ShareFigures] = {}
        for namespace, name, figures in heard:
            metrics.share_lag.labels(name, namespace, figures.group).set(figures.lag_tiles)
            key = (namespace, figures.group)
            if key not in groups or groups[key].taken < figures.taken:
                groups[key] = figures
        for (namespace, group), figures in groups.items():
            metrics.share_made.labels(namespace, group).set(figures.made)
            metrics.share_taken.labels(namespace, group).set(figures.taken)
            metrics.share_ratio.labels(namespace, group).set(figures.shared_ratio)
