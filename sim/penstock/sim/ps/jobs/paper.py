"""The two models of DLRover's evaluation, as far as its tables determine them.

From Table 1 (C_total = 200): one worker and one server of 32 cores use 2.5 and 5.7 cores at
12 steps/s (Wide & Deep), 19.4 and 3.1 cores at 6.2 steps/s (xDeepFM): so much work has a step.
The rest is calibrated to the published speeds: the shares of the eight servers of Wide & Deep (two
of them hot, as in Figure 6) and its queueing to 210 and then 258 steps/s, the queueing of xDeepFM
to 47.8 and then 56. Five epochs of 90 % of Criteo's 45,840,617 rows in batches of 512 are the steps
(section 6.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from penstock.sim.ps.jobs.model import GIB, PsConfig, PsJobModel, residence
from penstock.sim.ps.jobs.random_models import PsCase

STEPS: Final = 5 * 45_840_617 * 9 // 10 // 512
_SAMPLE_SERVER_CORES: Final = 32.0


@dataclass(frozen=True, kw_only=True)
class PaperJob:
    """A model of the paper with its published figures.

    `optimus` and `heuristic` are the steps of those baselines (section 6.3): how many servers and
    workers they add at once. The heuristic never changes servers: it is given `heuristic_servers`,
    half of the well-tuned number, as the paper does not say how many it had.
    """

    case: PsCase
    tuned: PsConfig
    optimus: tuple[int, int]
    heuristic: int
    heuristic_servers: int
    published: MappingProxyType[str, float]


def _calibrated(model: PsJobModel, alone: float) -> PsJobModel:
    """`model` with the I/O time that makes one worker and one large server run at `alone`."""
    server = residence(model, model.update_core_seconds, _SAMPLE_SERVER_CORES, alone)
    compute = model.compute_core_seconds / model.compute_cores
    return replace(model, io_seconds=1 / alone - compute - server)


_HOT, _WARM = 0.1545, 0.12
_REST: Final = (1 - 2 * _HOT - _WARM) / 5

WIDE_DEEP: Final = _calibrated(
    PsJobModel(
        name="wide-deep",
        io_seconds=0.0,
        server_io_seconds=0.0,
        compute_core_seconds=2.5 / 12,
        compute_cores=3.0,
        worker_idle_cores=0.0,
        update_core_seconds=5.7 / 12,
        update_cores=16.0,
        exposed=0.2,
        queueing=0.33,
        queueing_exponent=2.2,
        tensors=(1.02 * _REST, 0.98 * _REST, _HOT, _HOT, 1.03 * _REST, _WARM, 0.97 * _REST, _REST),
        parameter_bytes=24.0 * GIB,
        worker_bytes=3.0 * GIB,
        steps=STEPS,
        noise=0.005,
    ),
    alone=12.0,
)
XDEEPFM: Final = _calibrated(
    PsJobModel(
        name="xdeepfm",
        io_seconds=0.0,
        server_io_seconds=0.0,
        compute_core_seconds=19.4 / 6.2,
        compute_cores=20.0,
        worker_idle_cores=0.0,
        update_core_seconds=3.1 / 6.2,
        update_cores=16.0,
        exposed=0.1,
        queueing=0.2,
        queueing_exponent=2.1,
        tensors=(1.0,) * 24,
        parameter_bytes=8.0 * GIB,
        worker_bytes=6.0 * GIB,
        steps=STEPS,
        noise=0.005,
    ),
    alone=6.2,
)

PAPER_JOBS: Final = MappingProxyType(
    {
        "wide-deep": PaperJob(
            case=PsCase(model=WIDE_DEEP, cores=200, pod_cores=32),
            tuned=PsConfig(workers=(3.0,) * 24, servers=(16.0,) * 8),
            optimus=(2, 4),
            heuristic=4,
            heuristic_servers=4,
            published=MappingProxyType({"optimize": 210.0, "adjust": 258.0}),
        ),
        "xdeepfm": PaperJob(
            case=PsCase(model=XDEEPFM, cores=200, pod_cores=32),
            tuned=PsConfig(workers=(20.0,) * 8, servers=(16.0,) * 2),
            optimus=(1, 1),
            heuristic=1,
            heuristic_servers=1,
            published=MappingProxyType({"optimize": 47.8, "adjust": 56.0}),
        ),
    }
)
"""By the name that the command line gives them."""
SPARE_WORKERS: Final = 4
"""Spare workers that DLRover's own rule may add beyond the quota, as it did in the paper."""
