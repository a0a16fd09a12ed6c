"""The placement policies by name: the one list that commands, planner and simulator share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.scheduler.errors import UnknownPolicyError
from penstock.scheduler.placement.best_fit import BestFit
from penstock.scheduler.placement.fgd import Fgd
from penstock.scheduler.placement.most_allocated import Most
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.placement.random import Random
from penstock.scheduler.placement.spread import Spread
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.request import Request


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may need to be made: a seeded generator, and the workload's distribution."""

    generator: np.random.Generator
    typical: Mapping[Request, float]


_POLICIES: Final[Mapping[str, Callable[[Context], PlacementPolicy]]] = {
    Random.name: lambda context: Random(context.generator),
    BestFit.name: lambda _: BestFit(),
    Fgd.name: lambda context: Fgd(context.typical),
    Stranding.name: lambda _: Stranding(),
    Spread.name: lambda _: Spread(),
    Most.name: lambda _: Most(),
}

POLICY_NAMES: Final = tuple(_POLICIES)


def make_policy(name: str, context: Context) -> PlacementPolicy:
    """A new policy of that name.

    Raises:
        UnknownPolicyError: there is none; the message lists those that there are.
    """
    try:
        return _POLICIES[name](context)
    except KeyError:
        raise UnknownPolicyError(name, POLICY_NAMES) from None
