"""A job that waits for its input."""

from __future__ import annotations

from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests.throughput.programs import a_profile

STARVING = a_profile(
    batch_size=1,
    stages=(StageCost("dataset", "opaque", 0.11, bytes_out=1e6),),
    step=Measured(0.02, 0.019, 0.021, 1),
    rate=Measured(18.0, 17.0, 19.0, 1),
    stalled=0.6,
    causes={"preparation": 0.6},
    resources=Resources(cores=4, workers=2),
)
