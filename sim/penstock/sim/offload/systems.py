"""Random training jobs that wait for their data, and what each ratio of offloading gives them.

The ranges are those of a broad fleet: 1 to 16 cores beside the accelerator and up to 64 elsewhere,
0.3 to 100 ms of one core a sample, 10 KB to 5 MB of it over a network of 0.1 to 3.2 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.throughput.limits.capacity import Placement, bounds
from penstock.throughput.limits.cut import Cut
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile, Transport
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

WHOLE: Final = Cut("whole batch", 0, 1)
RATIOS: Final = np.linspace(0.0, 1.0, 201)
_ENOUGH_WORKERS: Final = 1000  # so that cores bind and not processes


@dataclass(frozen=True, slots=True)
class System:
    """A job as it is, or as it was measured with some noise."""

    profile: Profile
    resources: Resources

    def rate(self, share: float) -> float:
        """Samples a second with such a share of all batches made elsewhere."""
        return min(bounds(self.profile, self.resources, Placement(WHOLE, share)).values())

    def best(self) -> tuple[float, float]:
        """The best of all ratios, and its rate."""
        rates = [self.rate(float(share)) for share in RATIOS]
        at = int(np.argmax(rates))
        return float(RATIOS[at]), rates[at]

    @property
    def accelerator(self) -> float:
        """Samples a second when all data is there, with the cores that the training needs."""
        loop = self.profile.step.value * self.profile.step_cores
        return min(1 / self.profile.step.value, self.resources.cores / loop)


def draw(source: np.random.Generator) -> System:
    """One job; it need not wait for its data."""
    cores, elsewhere = int(source.integers(1, 17)), int(source.integers(1, 65))
    making = 10 ** source.uniform(-3.5, -1.0)
    size = 10 ** source.uniform(4.0, 6.7)  # bytes
    receive, send = 10 ** source.uniform(-10, -8.3), 10 ** source.uniform(-9.7, -8.3)
    network = 10 ** source.uniform(8.0, 9.5)
    loop = 10 ** source.uniform(-5.0, -3.0)  # of a core, for the training of one sample
    accelerator = 10 ** source.uniform(1.0, 4.3)
    resources = Resources(
        cores=cores,
        workers=_ENOUGH_WORKERS,
        data_workers=elsewhere,
        network_bytes_per_second=float(network),
    )
    profile = Profile(
        program="random",
        batch_size=1,
        stages=(StageCost("all", "opaque", float(making), bytes_out=float(size)),),
        step=Measured.given(float(1 / accelerator)),
        rate=Measured.given(1.0),
        stalled=0.0,
        resources=resources,
        step_cores=float(loop * accelerator),
        transport=Transport(float(send), float(receive)),
    )
    return System(profile, resources)


def measured(system: System, noise: float, source: np.random.Generator) -> System:
    """What a measurement says of it: every figure is wrong by a normal error."""

    def off(share: float = noise) -> float:
        return float(max(0.5, source.normal(1.0, share)))

    profile, resources = system.profile, system.resources
    stage = profile.stages[0]
    found = replace(
        profile,
        stages=(replace(stage, cpu_seconds=stage.cpu_seconds * off()),),
        step=profile.step.scaled(off(noise * 0.6)),
        transport=Transport(
            profile.transport.send_cpu_seconds * off(),
            profile.transport.receive_cpu_seconds * off(),
        ),
    )
    network = resources.network_bytes_per_second * off()
    return System(found, replace(resources, network_bytes_per_second=network))
