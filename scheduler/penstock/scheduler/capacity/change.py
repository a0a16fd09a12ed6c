"""What a cluster could have more or fewer of: nodes of some shape, or one that fails.

New nodes are as the cluster's own: they have the labels and taints of the most common shape, and
lose to pods of no job what each node of that shape loses to them at least, as to a daemon's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.scheduler.capacity.workload import HOSTNAME, HostedNode, Workload
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.objects import NOTHING, Amounts, Node
from penstock.scheduler.request import Taint

MOST_NODES: Final = 1000
"""That are added or removed at once."""

TOLERANCE: Final = 0.1
"""Part of its CPU and memory by which a node of the cluster may differ from a shape."""

ANY_ACCELERATOR: Final = "gpu"
"""In a shape: the kind that most nodes of the cluster have."""

_Shape = tuple[Amounts, tuple[tuple[str, str], ...], tuple[Taint, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Nodes that come, and the names of those that go."""

    added: tuple[HostedNode, ...] = ()
    removed: tuple[str, ...] = ()


def resized(workload: Workload, count: int, shape: Amounts | None = None) -> Change:
    """So many nodes more, or fewer where `count` is below zero.

    Those that would go are the ones whose loss takes least from jobs: a person, or an autoscaler,
    would choose them.

    Args:
        shape: of the nodes; None: the most common one among nodes that take pods.

    Raises:
        InvalidRequestError: the number is zero, too large or more than there are of that shape, or
            there is no node to be like.
    """
    if not count or abs(count) > MOST_NODES:
        raise InvalidRequestError("nodes", count, f"-{MOST_NODES} to {MOST_NODES}, and not 0")
    shape = None if shape is None else _of_a_kind(workload, shape)
    alike = _alike(workload, shape)
    if count > 0:
        if not alike and shape is None:
            rule = "the cluster has no node that takes pods: say the shape of the new ones"
            raise InvalidRequestError("nodes", count, rule)
        return Change(added=_new(workload, count, shape, alike))
    if len(alike) < -count:
        rule = f"the cluster has {len(alike)} nodes of that shape that take pods"
        raise InvalidRequestError("nodes", count, rule)
    weight = _held_by_jobs(workload)
    alike.sort(key=lambda one: (*weight.get(one.node.name, (0, 0)), one.node.name))
    return Change(removed=tuple(one.node.name for one in alike[:-count]))


def _of_a_kind(workload: Workload, shape: Amounts) -> Amounts:
    counts = Counter(
        kind for one in workload.nodes for kind, _ in one.node.allocatable.accelerators
    )
    common = counts.most_common(1)[0][0] if counts else ACCELERATOR_KINDS[0]
    named = ((common if kind == ANY_ACCELERATOR else kind, n) for kind, n in shape.accelerators)
    return replace(shape, accelerators=tuple(sorted(named)))


def failed(workload: Workload, name: str) -> Change:
    """One node gone.

    Raises:
        InvalidRequestError: there is none of that name.
    """
    if all(one.node.name != name for one in workload.nodes):
        rule = "no node has this name: `penstock fragmentation` lists those that there are"
        raise InvalidRequestError("fail_node", name, rule)
    return Change(removed=(name,))


def _alike(workload: Workload, shape: Amounts | None) -> list[HostedNode]:
    """The nodes that take pods and are of that shape; of the most common one where it is None."""
    there = [one for one in workload.nodes if not one.node.cordoned]
    if shape is not None:
        return [one for one in there if _is_about(one.node.allocatable, shape)]
    counts = Counter(map(_shape, there))
    if not counts:
        return []
    common = max(counts, key=lambda key: (counts[key], _accelerators(key[0]), key[0].milli_cpu))
    return [one for one in there if _shape(one) == common]


def _new(
    workload: Workload, count: int, shape: Amounts | None, alike: Sequence[HostedNode]
) -> tuple[HostedNode, ...]:
    relatives = alike or _relatives(workload, shape or NOTHING)
    if relatives:
        model = replace(relatives[0], others=_least(relatives), other_pods=_fewest(relatives))
    else:
        model = HostedNode(node=Node("", NOTHING))
    if shape is not None:
        model = replace(model, node=replace(model.node, allocatable=shape))
    taken = {one.node.name for one in workload.nodes}
    names = (name for number in range(1, count + len(taken) + 1) if (name := f"new-{number}"))
    free = [name for name in names if name not in taken][:count]
    return tuple(replace(model, node=_named(model.node, name)) for name in free)


def _relatives(workload: Workload, shape: Amounts) -> list[HostedNode]:
    """The most common nodes with the same accelerators; without any, if the shape has none."""
    kinds = [kind for kind, _ in shape.accelerators]
    there = [
        one
        for one in workload.nodes
        if [kind for kind, _ in one.node.allocatable.accelerators] == kinds
    ]
    return _alike(replace(workload, nodes=tuple(there)), None)


def _named(node: Node, name: str) -> Node:
    labels = dict(node.labels)
    if HOSTNAME in labels:
        labels[HOSTNAME] = name
    return replace(node, name=name, labels=labels, cordoned=False)


def _shape(one: HostedNode) -> _Shape:
    labels = tuple(sorted((k, v) for k, v in one.node.labels.items() if k != HOSTNAME))
    return one.node.allocatable, labels, one.node.taints


def _is_about(amounts: Amounts, shape: Amounts) -> bool:
    """Of what a machine has, its kubelet keeps some for itself: nobody knows it to the byte."""
    return amounts.accelerators == shape.accelerators and all(
        abs(have - said) <= TOLERANCE * said
        for have, said in (
            (amounts.milli_cpu, shape.milli_cpu),
            (amounts.memory_bytes, shape.memory_bytes),
        )
    )


def _accelerators(amounts: Amounts) -> int:
    return sum(count for _, count in amounts.accelerators)


def _least(nodes: Iterable[HostedNode]) -> Amounts:
    found = [one.others for one in nodes]
    return Amounts(
        min(one.milli_cpu for one in found),
        min(one.memory_bytes for one in found),
    )


def _fewest(nodes: Iterable[HostedNode]) -> int:
    return min(one.other_pods for one in nodes)


def _held_by_jobs(workload: Workload) -> dict[str, tuple[int, int]]:
    """By node, the accelerators and the CPU that pods of jobs hold."""
    found: dict[str, tuple[int, int]] = {}
    for one in workload.pods:
        accelerators, milli_cpu = found.get(one.node, (0, 0))
        found[one.node] = (
            accelerators + one.count * one.request.accelerators,
            milli_cpu + one.count * one.request.milli_cpu,
        )
    return found
