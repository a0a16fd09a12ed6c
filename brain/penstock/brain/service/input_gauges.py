"""Where the time of each job's input goes, as metrics, of the profiles that came in lately."""

from __future__ import annotations

import math
from typing import Final

from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.service.heard_lately import HeardLately
from penstock.brain.store.database import Database
from penstock.throughput.limits.capacity import bounds
from penstock.throughput.profiles.profile import Profile

MOST_CAUSES: Final = 12
"""Of a job, so that a profile with many stages makes no more time series than a pipeline has."""


class InputGauges:
    """The newest profile of each job."""

    def __init__(self, database: Database, metrics: BrainMetrics) -> None:
        self._metrics = metrics
        self._heard: HeardLately[Profile] = HeardLately(database)

    def note(self, uid: str, profile: Profile, now: float) -> None:
        """A job's newest profile."""
        self._heard.note(uid, profile, now)

    async def show(self, now: float) -> None:
        """Set the gauges to what was heard lately, and forget the rest."""
        heard = await self._heard.recent(now)
        metrics = self._metrics
        for gauge in (metrics.input_stall, metrics.input_rate, metrics.input_limit):
            gauge.clear()
        for namespace, name, profile in heard:
            metrics.input_rate.labels(name, namespace).set(profile.rate.value * profile.processes)
            causes = sorted(profile.causes.items(), key=lambda one: -one[1])[:MOST_CAUSES]
            for cause, share in causes:
                metrics.input_stall.labels(name, namespace, cause).set(share)
            for resource, limit in bounds(profile, profile.resources).items():
                if math.isfinite(limit):
                    metrics.input_limit.labels(name, namespace, resource).set(
                        limit * profile.processes
                    )
