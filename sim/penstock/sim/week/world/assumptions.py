"""Everything that the simulated week takes for granted, each with where it comes from.

No value here was chosen by what comes out. Where no source says anything, the source is "ours", and
`penstock sim week --sensitivity` shows what another value would change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from penstock.sim.errors import SimulationError, UnknownNameError

DAY: Final = 86_400.0
WEEK: Final = 7 * DAY


_ABOVE_ZERO: Final = (
    "mean_steps",
    "mean_parameters",
    "mean_over",
    "job_cores",
    "pod_cores",
    "node_cores",
    "node_gib",
    "load",
    "save_interval",
    "quota_share",
)
_MOST_SERVICES: Final = 0.9
_SHARES: Final = (
    "hot_share",
    "short_share",
    "short_memory",
    "services_share",
    "broken_share",
)


def _said(default: Any, source: str) -> Any:
    """A field that knows where its value comes from."""
    return field(default=default, metadata={"source": source})


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The world of one week. Times in seconds, sizes in cores and GiB, rates per day.

    Raises:
        SimulationError: a value with which there is no such world.
    """

    mean_steps: float = _said(268_000.0, "DLRover, Table 3")
    steps_sigma: float = _said(1.0, "ours: log-normal about that mean")
    mean_parameters: float = _said(29.2e6, "DLRover, Table 3; log-normal, sigma 1 (ours)")
    parameter_bytes: float = _said(16.0, "ours: value, two slots and the key of each parameter")
    server_base_gib: float = _said(1.0, "ours: a server's process without parameters")
    hot_share: float = _said(0.13, "DLRover, 6.4: jobs with hot servers")
    short_share: float = _said(0.06, "DLRover, 6.4: jobs whose servers use over 80 % of their CPU")
    least_over: float = _said(1.2, "sim create, after DLRover, section 1: asked over used, least")
    mean_over: float = _said(2.25, "the same: mean of what is asked on top (Gamma of shape 2.5)")
    short_memory: float = _said(0.03, "the same: roles given too little memory, 5 % of jobs")
    job_cores: float = _said(200.0, "DLRover, 6.1: most CPU of a job")
    pod_cores: float = _said(32.0, "DLRover, 6.1: most CPU of a pod")
    node_cores: float = _said(96.0, "openb: cores of its most frequent node")
    node_gib: float = _said(384.0, "openb: the least memory of such nodes")
    load: float = _said(
        0.8, "ours: requested of what services leave; section 1: new jobs wait, so not far from 1"
    )
    services_share: float = _said(0.55, "openb: CPU requests of its LS pods over its CPU")
    services_churn: float = _said(0.09, "Alibaba v2025 (DLRM): new CPU instances per standing one")
    node_losses: float = _said(0.0027, "DLRover, stabilize_llm: 8 % of cards fail in a month")
    node_repair: float = _said(3600.0, "ours")
    pod_errors: float = _said(0.0038, "Llama 3: 419 interruptions in 54 days on 2,048 hosts")
    broken_share: float = _said(
        0.05, "DLRover, Fig. 11: what fails there with DLRover, too, taken for faults of programs"
    )
    pod_start: float = _said(20.0, "DLRover, 6.3, as in sim ps")
    initialise: float = _said(100.0, "the same")
    repartition: float = _said(30.0, "as in sim ps: training stops for it when servers change")
    save_interval: float = _said(600.0, "ours: how often parameters are saved")
    patience: float = _said(
        7200.0, "ours: without a step for so long, and killed for memory again, a job is given up"
    )
    restarts: bool = _said(False, "DLRover, 6.4: a job that lost a pod was marked as failed")
    past_jobs: float = _said(1.0, "DLRover, 6.4: weeks after deployment; weeks of jobs remembered")
    quota_is_asked: bool = _said(
        True, "ours: a job may have what its user would have asked for, not job_cores"
    )
    quota_share: float = _said(
        1.0, "ours: the part of what its user would have asked for that a job may have"
    )
    cheapest: bool = _said(
        False, "ours: jobs are planned for the cheapest steps (spec.objective), not the fastest"
    )
    core_price: float = _said(0.03, "ours: a round list price, per core and hour")
    gib_price: float = _said(0.004, "ours: likewise, per GiB and hour")

    def __post_init__(self) -> None:
        for name in _ABOVE_ZERO:
            if getattr(self, name) <= 0:
                raise SimulationError(f"{name}={getattr(self, name):g}: must be above 0")
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise SimulationError(f"{name}={getattr(self, name):g}: must be from 0 to 1")
        if self.services_share > _MOST_SERVICES:
            raise SimulationError(
                f"services_share={self.services_share:g}: must leave something to training, so at"
                f" most {_MOST_SERVICES:g}"
            )
        if self.node_cores < self.pod_cores or self.job_cores < 2 * self.pod_cores:
            raise SimulationError(
                f"pod_cores={self.pod_cores:g}: a node must have room for one such pod, and a job"
                " for two"
            )

    @property
    def ready(self) -> float:
        """From a pod's placement until it trains."""
        return self.pod_start + self.initialise

    def rows(self) -> list[tuple[str, Any, str]]:
        """Name, value and source of each."""
        return [(one.name, getattr(self, one.name), one.metadata["source"]) for one in fields(self)]


VARIANTS: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "mean_steps": (134_000.0, 536_000.0),
        "steps_sigma": (0.5, 1.5),
        "mean_parameters": (2.9e6, 2.92e9),
        "server_base_gib": (0.0,),
        "hot_share": (0.0, 0.26),
        "short_share": (0.0, 0.12),
        "mean_over": (1.0, 3.5),
        "short_memory": (0.0, 0.06),
        "job_cores": (100.0, 300.0),
        "node_cores": (64.0, 128.0),
        "load": (0.4, 1.0),
        "services_share": (0.3, 0.7),
        "services_churn": (0.0, 0.9),
        "node_losses": (0.0, 0.027),
        "pod_errors": (0.0, 0.038),
        "broken_share": (0.0, 0.172),
        "initialise": (30.0, 600.0),
        "repartition": (5.0, 300.0),
        "save_interval": (60.0, 3600.0),
        "restarts": (True,),
        "past_jobs": (0.0,),
        "quota_is_asked": (False,),
        "quota_share": (0.35, 0.6),
        "cheapest": (True,),
    }
)
"""Other values of one assumption at a time, for the sensitivity; prices only scale the cost."""


def varied(base: Assumptions, name: str, value: Any) -> Assumptions:
    """`base` with one other value.

    Raises:
        UnknownNameError: there is no such assumption.
    """
    if name not in {one.name for one in fields(Assumptions)}:
        raise UnknownNameError("assumption", name, tuple(one.name for one in fields(Assumptions)))
    return replace(base, **{name: value})
