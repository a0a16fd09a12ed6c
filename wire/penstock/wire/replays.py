"""Past jobs run again with another placement policy: the question, and its answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.base.replay_hours import MOST_HOURS, WEEK_HOURS
from penstock.wire.base import Counter, Rate, Seconds, Text, WireModel
from penstock.wire.workload import Word


class ClusterReplayRequest(WireModel):
    """The body of ``POST /v1/cluster/replay``."""

    policy: Annotated[Word, Field(min_length=1)]
    """The placement policy that would have been the scheduler's."""
    hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = WEEK_HOURS
    """How far back to look."""


class Spread(WireModel):
    """A figure as recorded, and between what it lies if jobs had come a little otherwise."""

    value: float
    low: float
    high: float


class ReplayedFigure(WireModel):
    """One figure with the scheduler's policy, with the other one, and the difference."""

    before: Spread
    after: Spread
    change: Spread
    """After less before, of the same arrivals."""


class ClusterReplay(WireModel):
    """What past jobs would have waited for."""

    start: Seconds
    end: Seconds
    policy_before: Word
    """The scheduler's policy."""
    policy: Word
    jobs: Counter
    """That came in this time, and are in the figures."""
    ended: Counter
    """Of these; completion is theirs alone."""
    running_before: Counter
    """Jobs of before, which take room and are not counted."""
    never: Counter
    """Jobs that do not fit on the nodes of now."""
    silent: Counter
    """Jobs that came and sent no sample."""
    earlier: Counter
    """Jobs that start more than a minute earlier."""
    later: Counter
    repetitions: Counter
    """With arrivals and durations moved by up to a minute; behind the ranges."""
    mean_wait_seconds: ReplayedFigure
    median_wait_seconds: ReplayedFigure
    most_wait_seconds: ReplayedFigure
    """Nine of ten jobs wait less."""
    waited_jobs: ReplayedFigure
    """For longer than a minute."""
    mean_completion_seconds: ReplayedFigure
    """From arrival to end."""
    median_completion_seconds: ReplayedFigure
    stranded_accelerators: ReplayedFigure
    """That cannot be used for lack of CPU, on average over the time."""
    free_accelerators: ReplayedFigure
    recorded_mean_wait_seconds: Rate
    """What the jobs did wait, until their first sample; pods that start are in it."""
    recorded_stranded_accelerators: Rate | None = None
    """As the scheduler saw them, on average; absent where it has sent nothing in this time."""
    notes: list[Text]
    """What is taken for granted."""
