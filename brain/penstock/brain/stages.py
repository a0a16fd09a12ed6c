"""Which algorithms to ask, and in which order, at a given point of a job's life.

The optimizer of DLRover (section 4.3) as two pure functions: `stages_to_ask` says where the job
stands, from the plans that took effect, and `names_to_ask` lists the algorithms for it. They are
asked in order and the first plan wins; an algorithm that has nothing to say answers None.

No state is kept between calls: a Brain that has been restarted asks the same algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from penstock.base.enums import Optimize, Stage, Strategy
from penstock.brain.planning import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The algorithms of each stage, in the order in which they are asked."""

    stages: Mapping[Stage, tuple[str, ...]] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Every algorithm named, without repetition: what a registry must have."""
        return tuple(dict.fromkeys(name for names in self.stages.values() for name in names))


_CREATE: Final = ("history_create", "cold_create")
_OOM: Final = ("oom_ps", "oom_worker")

DEFAULT_POLICIES: Final[Mapping[Strategy, Policy]] = MappingProxyType(
    {
        Strategy.PARAMETER_SERVER: Policy(
            stages={
                Stage.CREATE: _CREATE,
                Stage.SAMPLE: (*_OOM, "sample"),
                # A slow pod first: what is fitted to its samples holds only while it stays.
                Stage.OPTIMIZE: (
                    *_OOM,
                    "straggler",
                    "to_objective",
                    "fitted_ps",
                    "offload",
                    "data_workers",
                ),
                Stage.ADJUST: (
                    *_OOM,
                    "straggler",
                    "to_objective",
                    "fitted_ps",
                    "hot_ps",
                    "idle_ps",
                    "offload",
                    "data_workers",
                ),
            }
        ),
        Strategy.ALL_REDUCE: Policy(
            stages={
                Stage.CREATE: _CREATE,
                Stage.OPTIMIZE: (
                    "oom_worker",
                    "to_objective",
                    "scale_allreduce",
                    "offload",
                    "data_workers",
                ),
                Stage.ADJUST: (
                    "oom_worker",
                    "straggler",
                    "to_objective",
                    "scale_allreduce",
                    "offload",
                    "data_workers",
                ),
            }
        ),
        Strategy.LOCAL: Policy(
            stages={
                Stage.CREATE: _CREATE,
                Stage.OPTIMIZE: ("oom_worker", "offload", "data_workers"),
                Stage.ADJUST: ("oom_worker", "offload", "data_workers"),
            }
        ),
    }
)
"""What a job of each strategy gets unless the configuration says otherwise."""


def stages_to_ask(history: History, optimize: Optimize = Optimize.AUTO) -> tuple[Stage, ...]:
    """The stages that may have a plan for the job now, in the order to ask.

    A stage that has made a plan is asked again before the next one begins: `sample` may give the
    servers more CPU several times, `optimize_ps` scales first the servers and then the workers.
    """
    if optimize is Optimize.MANUAL:
        return ()
    if not history.plans:
        return (Stage.CREATE,)
    if optimize is Optimize.INITIAL:
        return ()
    match history.plans[-1].stage:
        case Stage.CREATE | Stage.SAMPLE:
            return (Stage.SAMPLE, Stage.OPTIMIZE)
        case Stage.OPTIMIZE:
            return (Stage.OPTIMIZE, Stage.ADJUST)
        case _:
            return (Stage.ADJUST,)


def names_to_ask(policy: Policy, stage: Stage) -> tuple[str, ...]:
    """The algorithms that `policy` has for `stage`, in order; empty where it has none."""
    return policy.stages.get(stage, ())
