"""Whom to remove so that a more important pod fits: kube-scheduler's default preemption, pure.

On each node where room is what is missing, all pods of lower priority are taken away in thought;
if the pod fits then, as many as possible are let back in, most important first. Among the nodes
that remain, the one whose victims matter least wins: the lowest highest priority, then the
smallest sum of priorities, then the fewest victims, then the most recently started, then the name.
Budgets (PodDisruptionBudget) are honoured by preference only, as by the real one: victims that no
budget protects come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_cluster.requests import Amounts
from penstock_cluster.scheduler.nodes.fit import may_use, reserved_for_others, shortages
from penstock_cluster.scheduler.nodes.inventory import NodeAccount, Occupant

Json = Mapping[str, Any]
IsProtected = Callable[[Occupant], bool]

_OFFSET = 2**31
"""Priorities may be negative; summed as they are, more victims could look cheaper."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Remove ``victims`` from ``node_name`` and the pod fits there."""

    node_name: str
    victims: tuple[Occupant, ...]


def may_preempt(pod_spec: Json) -> bool:
    """Whether the pod may push others out at all."""
    return pod_spec.get("preemptionPolicy") != "Never"


def choose_preemption(
    pod: Json,
    occupant: Occupant,
    accounts: Iterable[NodeAccount],
    is_protected: IsProtected = lambda victim: False,
) -> Preemption | None:
    """The cheapest way to make room for the pod, or None when there is none."""
    candidates = []
    for account in accounts:
        if may_use(pod["spec"], account.node) is not None:
            continue
        victims = select_victims(occupant, account, is_protected)
        if victims:
            candidates.append((account, victims))
    if not candidates:
        return None
    account, victims = min(
        candidates, key=lambda found: _cost(found[0].name, found[1], is_protected)
    )
    return Preemption(account.name, tuple(victims))


def select_victims(
    occupant: Occupant, account: NodeAccount, is_protected: IsProtected
) -> list[Occupant]:
    """A smallest set of less important pods whose removal makes room; empty: no such set."""
    removable = [
        other for other in account.occupants.values() if other.priority < occupant.priority
    ]
    freed: Amounts = {}
    for other in removable:
        for resource, amount in other.requests.items():
            freed[resource] = freed.get(resource, 0) + amount
    reserved = reserved_for_others(account, occupant.uid, occupant.priority)
    if shortages(occupant.requests, account, freed, reserved):
        return []
    victims = []
    for other in sorted(removable, key=lambda pod: _keep_first(pod, is_protected)):
        for resource, amount in other.requests.items():
            freed[resource] -= amount
        if shortages(occupant.requests, account, freed, reserved):
            victims.append(other)
            for resource, amount in other.requests.items():
                freed[resource] += amount
    return victims


def _keep_first(pod: Occupant, is_protected: IsProtected) -> tuple[bool, int, str, str]:
    """Sort key: the protected, then the important, then the longest running are let back in."""
    return (not is_protected(pod), -pod.priority, pod.start_time or "~", pod.uid)


def _cost(
    node_name: str, victims: Sequence[Occupant], is_protected: IsProtected
) -> tuple[int, int, int, int, tuple[int, ...], str]:
    highest = max(victim.priority for victim in victims)
    earliest = min(
        (victim.start_time or "~" for victim in victims if victim.priority == highest), default=""
    )
    return (
        sum(is_protected(victim) for victim in victims),
        highest,
        sum(victim.priority + _OFFSET for victim in victims),
        len(victims),
        tuple(-ord(character) for character in earliest),
        node_name,
    )
