"""What the next data worker is expected to add, learned from what the last one did.

GoldMiner (SIGMOD 2023, section 3.4.2) assumes that the next step gains as much per core as the
previous one did: optimistic, since data workers do not synchronise, and corrected by what is then
measured. Before anything was measured, what a model of the job says counts, and where there is
none, throughput is taken as proportional to cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class GainEstimate:
    """What one job's last step gained. Rates in steps per second, CPU in milli-cores."""

    milli_cpu: int = 0
    throughput: float = 0.0
    per_milli_cpu: float | None = None

    def measured(self, milli_cpu: int, throughput: float) -> GainEstimate:
        """The estimate after an interval with that much CPU and throughput.

        A change of CPU gives a new gain per core; a measurement that is no number changes nothing.
        """
        if not math.isfinite(throughput) or throughput < 0 or milli_cpu < 0:
            return self
        step = milli_cpu - self.milli_cpu
        if step == 0:
            return replace(self, throughput=throughput)
        gained = (throughput - self.throughput) / step
        return GainEstimate(milli_cpu, throughput, max(0.0, gained))

    def next_gain(self, next_milli_cpu: int, modelled: float | None = None) -> float:
        """Throughput that this much more CPU is expected to add.

        ``modelled``: per milli-core, what a model of the job says; None: there is none.
        """
        if self.per_milli_cpu is not None:
            return self.per_milli_cpu * next_milli_cpu
        if modelled is not None:
            return modelled * next_milli_cpu
        if self.milli_cpu and self.throughput:
            return self.throughput / self.milli_cpu * next_milli_cpu
        return 0.0
