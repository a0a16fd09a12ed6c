"""Whether a pod's constraints allow a node: selector, required affinity, taints (pure).

As kube-scheduler's NodeAffinity and TaintToleration filters decide it; preferences filter nothing.
A cordon is a taint to Kubernetes and a flag here (`NodeTable.schedulable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.scheduler.request import Constraints, Expression, Taint, TaintEffect, Term, Toleration


@dataclass(frozen=True, slots=True)
class NodeTraits:
    """What of a node its constraints are held against."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


def allows(traits: NodeTraits, constraints: Constraints) -> bool:
    """Whether a pod with these constraints may be bound to the node."""
    return (
        all(traits.labels.get(key) == value for key, value in constraints.node_selector)
        and tolerates(traits.taints, constraints.tolerations)
        and (
            constraints.affinity is None
            or any(_term_holds(traits, term) for term in constraints.affinity)
        )
    )


def tolerates(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether every taint that keeps pods away is tolerated."""
    return all(
        taint.effect == TaintEffect.PREFER_NO_SCHEDULE
        or any(_tolerated(taint, toleration) for toleration in tolerations)
        for taint in taints
    )


def _tolerated(taint: Taint, toleration: Toleration) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    # Without a key, only Exists matches every taint.
    return bool(toleration.key) and toleration.value == taint.value


def _term_holds(traits: NodeTraits, term: Term) -> bool:
    if not term.labels and not term.fields:
        return False
    fields = {"metadata.name": traits.name}
    return all(_holds(traits.labels, expression) for expression in term.labels) and all(
        _holds(fields, expression) for expression in term.fields
    )


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _compared(value: str | None, values: Sequence[str], holds: Callable[[int, int], bool]) -> bool:
    if value is None or len(values) != 1:
        return False
    left, right = _integer(value), _integer(values[0])
    return left is not None and right is not None and holds(left, right)


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, lambda a, b: a > b),
    "Lt": lambda value, values: _compared(value, values, lambda a, b: a < b),
}


def _holds(labels: Mapping[str, str], expression: Expression) -> bool:
    """An operator that nobody knows matches nothing: a pod is then not placed, not misplaced."""
    operator = _OPERATORS.get(expression.operator)
    return operator is not None and operator(labels.get(expression.key), expression.values)
