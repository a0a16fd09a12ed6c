"""From rows of the store to the `History` that algorithms see.

Turning packed samples into objects is by far the most work of planning. It is therefore done in
the process that runs the algorithm: a `HistoryRecord` travels there as it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.brain.planning import (
    AppliedPlan,
    GroupMember,
    History,
    JobEvent,
    PastJob,
    Sample,
    Spending,
)
from penstock.brain.rank_columns import rank_samples, unpack
from penstock.throughput.profiles.profile import Profile


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One sample as it was read; times by the server's clock."""

    at_seconds: float
    interval_seconds: float
    step: int
    steps_per_second: float
    samples_per_second: float
    world_size: int
    ranks: bytes

    def sample(self) -> Sample:
        """The sample as algorithms see it."""
        return Sample(
            time_seconds=self.at_seconds,
            interval_seconds=self.interval_seconds,
            step=self.step,
            steps_per_second=self.steps_per_second,
            samples_per_second=self.samples_per_second,
            world_size=self.world_size,
            roles={role: rank_samples(columns) for role, columns in unpack(self.ranks).items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """A history with its samples still packed; everything oldest first."""

    now_seconds: float
    samples: tuple[SampleRecord, ...] = ()
    plans: tuple[AppliedPlan, ...] = ()
    events: tuple[JobEvent, ...] = ()
    past_jobs: tuple[PastJob, ...] = ()
    profile: Profile | None = None
    group: tuple[GroupMember, ...] = ()
    spending: Spending | None = None

    def history(self) -> History:
        """The whole history."""
        return replace(
            self.without_samples(), samples=tuple(record.sample() for record in self.samples)
        )

    def without_samples(self) -> History:
        """The history less its samples: enough to know the stage and to check a plan."""
        return History(
            now_seconds=self.now_seconds,
            plans=self.plans,
            events=self.events,
            past_jobs=self.past_jobs,
            profile=self.profile,
            group=self.group,
            spending=self.spending,
        )
