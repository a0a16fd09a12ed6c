"""Profiles as hypothesis draws them, and a plain one to vary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile, Storage, Transport
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost


def a_profile(**changes: Any) -> Profile:
    """ResNet-like: 10 ms of decoding and 5 ms of transforms a sample, a step of 0.1 s for 32."""
    plain = Profile(
        program="train.py",
        batch_size=32,
        stages=(
            StageCost("fetch", "fetch", 0.0005, 0.001, 110e3),
            StageCost("decode", "transform", 0.010, 0.0, 150e3),
            StageCost("ToTensor", "transform", 0.005, 0.0, 600e3),
            StageCost("collate", "collate", 0.0002, 0.0, 600e3, movable=True),
        ),
        step=Measured(0.1, 0.098, 0.102, 30),
        rate=Measured(200.0, 195.0, 205.0, 30),
        stalled=0.3,
        resources=Resources(cores=4, workers=4),
    )
    return replace(plain, **changes)


STARVING = a_profile(
    batch_size=1,
    stages=(StageCost("dataset", "opaque", 0.11, bytes_out=1e6),),
    step=Measured(0.02, 0.019, 0.021, 1),
    rate=Measured(18.0, 17.0, 19.0, 1),
    stalled=0.6,
    causes={"preparation": 0.6},
    resources=Resources(cores=4, workers=2),
)
"""Of a running job that waits for its input."""

costs = st.floats(1e-5, 0.05)
sizes = st.floats(1e3, 2e6)


@st.composite
def stages(draw: st.DrawFn) -> tuple[StageCost, ...]:
    number = draw(st.integers(1, 4))
    made = [
        StageCost(
            f"transform {index}",
            "fetch" if index == 0 else "transform",
            draw(costs),
            draw(st.sampled_from((0.0, 0.001, 0.01))),
            draw(sizes),
            movable=draw(st.booleans()),
        )
        for index in range(number)
    ]
    return tuple(made)


@st.composite
def resources(draw: st.DrawFn) -> Resources:
    return Resources(
        cores=draw(st.floats(0.5, 32)),
        workers=draw(st.integers(1, 24)),
        prefetch=draw(st.integers(1, 4)),
        data_workers=draw(st.integers(0, 8)),
        data_worker_cores=draw(st.floats(0.5, 8)),
        network_bytes_per_second=draw(st.floats(1e7, 1e10)),
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    step = draw(st.floats(0.001, 0.5))
    rate = draw(st.floats(1.0, 1000.0))
    storage = Storage(
        bytes_per_sample=draw(sizes),
        total_bytes=draw(st.floats(1e9, 1e11)),
        hits=draw(st.floats(0, 1)),
        cold_seconds=draw(costs),
        cold_bytes_per_second=draw(st.floats(1e7, 1e9)),
    )
    return Profile(
        program="any.py",
        batch_size=draw(st.integers(1, 64)),
        stages=draw(stages()),
        step=Measured(step, step * 0.97, step * 1.03, 20),
        rate=Measured(rate, rate * 0.97, rate * 1.03, 20),
        stalled=draw(st.floats(0, 1)),
        resources=draw(resources()),
        step_cores=draw(st.floats(0, 1)),
        hand_over_seconds=draw(st.floats(0, 0.001)),
        spread=tuple(sorted(draw(st.lists(st.floats(0.3, 3.0), min_size=1, max_size=8)))),
        contention=draw(st.floats(0, 0.05)),
        storage=draw(st.none() | st.just(storage)),
        transport=Transport(draw(st.floats(0, 3e-9)), draw(st.floats(0, 3e-9))),
        causes={"fetch": 0.25, "collate": 0.75},
        notes=("one",),
    )
