"""Profiles and what follows from them, as they go over the wire."""

from __future__ import annotations

import json
import math

from penstock.brain.service.profiles import InputState, Stored
from penstock.brain.store.tables import ProfileRow
from penstock.throughput.decision.in_job import JobDecision
from penstock.throughput.decision.offload import unit
from penstock.throughput.decision.what_if import Point
from penstock.throughput.limits.capacity import bounds
from penstock.throughput.profiles.profile import Profile
from penstock.wire.base import MAX_RATE
from penstock.wire.profiles import (
    Configuration,
    InputCut,
    InputDecision,
    InputView,
    ProfileSource,
    ProfileView,
    WhatIf,
    WhatIfPoint,
)

_LONGEST = 1024
_LONGEST_NAME = 253


def profile_line(row: ProfileRow) -> ProfileView:
    """A profile without its content."""
    return ProfileView(
        job_uid=row.job_uid,
        source=ProfileSource(row.source),
        program=row.program,
        time=row.measured_seconds,
        pipeline=row.pipeline,
        model=row.model,
        machine=row.machine,
        uses=row.uses,
        last_error=row.last_error,
    )


def profile_view(stored: Stored) -> ProfileView:
    """A profile with its content."""
    content = json.loads(stored.row.content)
    return profile_line(stored.row).model_copy(update={"content": content})


def what_if_view(profile: Profile, asked: list[Configuration], points: list[Point]) -> WhatIf:
    """Answers beside their questions."""
    return WhatIf(
        unit=unit(profile),
        measured=_rate(profile.rate.value),
        items=[
            WhatIfPoint(
                configuration=configuration,
                rate=_rate(point.prediction.rate),
                low=_rate(point.prediction.low),
                high=_rate(point.prediction.high),
                stalled=min(1.0, max(0.0, point.prediction.stalled)),
                binding=point.prediction.binding,
                extrapolated=point.prediction.extrapolated,
            )
            for configuration, point in zip(asked, points, strict=True)
        ],
    )


def input_view(state: InputState) -> InputView:
    """Where the time goes, and what should be done."""
    profile, row = state.stored.profile, state.stored.row
    limits = bounds(profile, profile.resources)
    times = profile.processes
    return InputView(
        time=row.measured_seconds,
        source=ProfileSource(row.source),
        unit=unit(profile),
        processes=times,
        rate=_rate(profile.rate.value * times),
        stalled=profile.stalled,
        causes={name[:253]: min(1.0, share) for name, share in profile.causes.items()},
        limits={name: _rate(rate * times) for name, rate in limits.items() if math.isfinite(rate)},
        cores=profile.resources.cores,
        workers=profile.resources.workers,
        data_workers=profile.resources.data_workers,
        model_error=profile.model_error,
        cut=profile.cut[:_LONGEST_NAME],
        decision=decision_view(state.decision, times),
    )


def decision_view(decision: JobDecision, processes: int) -> InputDecision:
    """What data workers there should be, for so many training processes."""
    compared = decision.cuts
    return InputDecision(
        data_workers=decision.data_workers,
        cores=decision.cores,
        promised=_rate(decision.promised.rate),
        promised_low=_rate(decision.promised.low),
        promised_high=_rate(decision.promised.high),
        without=_rate(decision.without),
        share=min(1.0, max(0.0, decision.share)),
        cut=decision.cut[:_LONGEST_NAME],
        binding=decision.binding,
        waits_for_storage=decision.waits_for_storage,
        why=decision.why[:_LONGEST],
        runner_up=decision.runner_up[:_LONGEST],
        cuts=tuple(
            InputCut(
                kind=str(one.kind),
                cut=one.cut[:_LONGEST_NAME],
                rate=_rate(one.rate * processes),
                data_workers=one.data_workers * processes,
                why=one.why[:_LONGEST],
            )
            for one in (compared.options if compared is not None else ())
        ),
        cut_why=compared.why[:_LONGEST] if compared is not None else "",
    )


def _rate(value: float) -> float:
    """As the wire has rates: what a profile bounds from above may be far beyond them."""
    return min(value, MAX_RATE)
