"""Where the time of each job's input goes, as metrics, of the profiles that came in lately.

As with GPUs each of several Brains shows the jobs that it heard from, and none for long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.throughput.limits.capacity import bounds
from penstock.throughput.profiles.profile import Profile

SHOWN_SECONDS: Final = 60.0
MOST_CAUSES: Final = 12
"""Of a job, so that a profile with many stages makes no more time series than a pipeline has."""


class InputGauges:
    """The newest profile of each job."""

    def __init__(self, database: Database, metrics: BrainMetrics) -> None:
        self._database = database
        self._metrics = metrics
        self._newest: dict[str, tuple[float, Profile]] = {}

    def note(self, uid: str, profile: Profile, now: float) -> None:
        """A job's newest profile."""
        self._newest[uid] = (now, profile)

    async def show(self, now: float) -> None:
        """Set the gauges to what was heard lately, and forget the rest."""
        oldest = now - SHOWN_SECONDS
        self._newest = {uid: one for uid, one in self._newest.items() if one[0] >= oldest}
        names: Mapping[str, tuple[str, str]] = {}
        if self._newest:
            async with self._database.read() as session:
                names = await Jobs(self._database, session).active_names(list(self._newest))
        metrics = self._metrics
        for gauge in (metrics.input_stall, metrics.input_rate, metrics.input_limit):
            gauge.clear()
        for uid, (namespace, name) in names.items():
            profile = self._newest[uid][1]
            metrics.input_rate.labels(name, namespace).set(profile.rate.value * profile.processes)
            causes = sorted(profile.causes.items(), key=lambda one: -one[1])[:MOST_CAUSES]
            for cause, share in causes:
                metrics.input_stall.labels(name, namespace, cause).set(share)
            for resource, limit in bounds(profile, profile.resources).items():
                if math.isfinite(limit):
                    metrics.input_limit.labels(name, namespace, resource).set(
                        limit * profile.processes
                    )
