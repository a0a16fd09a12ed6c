"""What is measured of a job's input, what would change it, and what is decided about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from penstock.wire.base import Bytes, Cores, Name, Rate, Seconds, Text, WireModel

MAX_CONFIGURATIONS: Final = 64

Share = Annotated[float, Field(ge=0, le=1)]
Key = Annotated[str, Field(max_length=128)]


class ProfileSource(StrEnum):
    """Who measured."""

    PROFILER = "profiler"
    """``penstock profile``."""
    JOB = "job"
    """The running job's trainer."""


class ProfileBody(WireModel):
    """The body of ``PUT /v1/jobs/{uid}/profile``."""

    source: ProfileSource = ProfileSource.PROFILER
    content: dict[str, Any]
    """As ``penstock profile --output`` writes it."""


class ProfileView(WireModel):
    """One stored profile."""

    job_uid: str
    source: ProfileSource
    program: Name = ""
    time: Seconds
    """When it was measured."""
    pipeline: Key = ""
    model: Key = ""
    machine: Key = ""
    uses: int = 0
    """Other jobs of its kind that were planned with it."""
    last_error: float | None = None
    """By how much it was off for the newest of them, as a share of what that one then did."""
    content: dict[str, Any] | None = None
    """Left out of lists."""


class Configuration(WireModel):
    """Resources of one training process; what is absent is as it was measured."""

    cores: Annotated[float, Field(gt=0, le=4096)] | None = None
    workers: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Of the loader (``num_workers``)."""
    cache_bytes: Bytes | None = None
    storage_bytes_per_second: Annotated[float, Field(gt=0, le=1e15)] | None = None
    data_workers: Annotated[int, Field(ge=0, le=1024)] | None = None
    data_worker_cores: Annotated[float, Field(gt=0, le=1024)] | None = None


class WhatIfRequest(WireModel):
    """The body of ``POST /v1/jobs/{uid}/whatif``."""

    configurations: Annotated[
        list[Configuration], Field(min_length=1, max_length=MAX_CONFIGURATIONS)
    ]


class WhatIfPoint(WireModel):
    """What one training process would do; rates in the unit of the answer."""

    configuration: Configuration
    rate: Rate
    low: Rate
    high: Rate
    """In 95 of 100 cases the rate is between these."""
    stalled: Share
    """Of its time, for which it would wait for its input."""
    binding: Name
    """What bounds the rate."""
    extrapolated: bool
    """It is far from what was measured, and the interval wider for it."""


class WhatIf(WireModel):
    """Answers in the order of the questions."""

    unit: Name
    """``samples/s``, or ``batches/s`` where only these are counted."""
    measured: Rate
    """What it did when the profile was taken."""
    items: list[WhatIfPoint]


class InputCut(WireModel):
    """One way to divide the making of a batch, beside the others."""

    kind: Name
    """``whole batch``, ``tail local`` or ``read local``."""
    cut: Name = ""
    """The best of its kind; empty: none could be judged."""
    rate: Rate = 0.0
    data_workers: Annotated[int, Field(ge=0)] = 0
    why: Text = ""
    """What bounds it, or why none was judged."""


class InputDecision(WireModel):
    """What data workers the job should have, of all its training processes together."""

    data_workers: Annotated[int, Field(ge=0)]
    """0: none would help enough."""
    cores: Annotated[int, Field(ge=1)]
    """Of each."""
    promised: Rate
    promised_low: Rate
    promised_high: Rate
    without: Rate
    """The rate without any."""
    share: Share
    """Of the batches, that they make."""
    cut: Name
    """What of a batch they make."""
    binding: Name
    """What bounds the rate then."""
    waits_for_storage: bool
    why: Text
    runner_up: Text = ""
    cuts: tuple[InputCut, ...] = ()
    """One of each kind, where data workers were judged."""
    cut_why: Text = ""
    """Which of them pays, which is next, and why."""


class InputView(WireModel):
    """Where the time of a job's input goes; rates are of all its training processes."""

    time: Seconds
    """When it was measured."""
    source: ProfileSource
    unit: Name
    processes: int
    rate: Rate
    stalled: Share
    """Of the training's time, waiting for input."""
    causes: dict[Name, Share]
    """Of the training's time, by what it waited for."""
    limits: dict[Name, Rate]
    """The rate that each resource allows by itself; the least binds."""
    cores: Cores
    """Of one training pod."""
    workers: int
    """Local ones, of one training process."""
    data_workers: int
    """Of one training process, when it was measured."""
    model_error: float
    """What the model misses of the measured rate, as a share."""
    cut: Name = ""
    """What data workers made of each batch when it was measured; empty: nothing."""
    decision: InputDecision
