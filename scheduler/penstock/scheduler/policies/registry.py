"""The allocation policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.scheduler.errors import UnknownPolicyError
from penstock.scheduler.policies.fair import Fair
from penstock.scheduler.policies.least_work import LeastWork
from penstock.scheduler.policies.max_throughput import MaxThroughput
from penstock.scheduler.policies.policy import AllocationPolicy
from penstock.scheduler.policies.shortest_remaining import ShortestRemaining

_POLICIES: Final[Mapping[str, Callable[[], AllocationPolicy]]] = {
    Fair.name: Fair,
    MaxThroughput.name: MaxThroughput,
    ShortestRemaining.name: ShortestRemaining,
    LeastWork.name: LeastWork,
}

ALLOCATION_POLICY_NAMES: Final = tuple(_POLICIES)


def make_allocation_policy(name: str) -> AllocationPolicy:
    """The policy of that name.

    Raises:
        UnknownPolicyError: there is none; the message lists those that there are.
    """
    try:
        return _POLICIES[name]()
    except KeyError:
        raise UnknownPolicyError(name, ALLOCATION_POLICY_NAMES) from None
