"""A workload on the wire, and read from it: at most so many nodes and pods that a body holds them.

Reading what was written gives the same workload, but for what was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.scheduler.capacity.workload import HostedNode, PodGroup, WaitingJob, Workload
from penstock.scheduler.objects import Amounts, Node
from penstock.scheduler.request import (
    ANYWHERE,
    Constraints,
    Expression,
    Request,
    Taint,
    Term,
    Toleration,
)
from penstock.wire import workload as wire


def written(workload: Workload, now: float, placement: str) -> wire.Workload:
    """What is sent; of too many nodes those that jobs are on or that have most accelerators."""
    used = {one.node for one in workload.pods}
    nodes = sorted(
        workload.nodes,
        key=lambda one: (
            one.node.name not in used,
            -sum(count for _, count in one.node.allocatable.accelerators),
            one.node.name,
        ),
    )[: wire.MAX_WORKLOAD_NODES]
    names = {one.node.name for one in nodes} | {""}
    pods = [one for one in workload.pods if one.node in names]
    if len(pods) > wire.MAX_POD_GROUPS:  # of those that wait rather all
        pods = sorted(pods, key=lambda one: one.node != "")[: wire.MAX_POD_GROUPS]
    constraints = list(dict.fromkeys(one.request.constraints for one in pods))
    place = {one: index for index, one in enumerate(constraints)}
    uids = {one.job for one in pods}
    left_out = len(workload.nodes) - len(nodes) + len(workload.pods) - len(pods)
    return wire.Workload(
        time=now,
        placement=placement,
        nodes=[_node(one) for one in nodes],
        constraints=[_constraints(one) for one in constraints],
        pods=[_pods(one, place[one.request.constraints]) for one in pods],
        jobs=[
            wire.WorkloadJob(
                uid=one.uid,
                namespace=one.namespace,
                name=one.name,
                together=one.together,
                strategy=one.strategy,
                signature=dict(one.signature),
            )
            for one in workload.jobs.values()
            if one.uid in uids
        ],
        left_out=left_out,
    )


def read(sent: wire.Workload) -> Workload:
    """The workload that was sent; constraints that are not in its list allow every node."""
    constraints = [_read_constraints(one) for one in sent.constraints]
    return Workload(
        nodes=tuple(_read_node(one) for one in sent.nodes),
        pods=tuple(_read_pods(one, constraints) for one in sent.pods),
        jobs={
            one.uid: WaitingJob(
                uid=one.uid,
                namespace=one.namespace,
                name=one.name,
                together=one.together,
                strategy=one.strategy,
                signature=one.signature,
            )
            for one in sent.jobs
        },
    )


def resources(amounts: Amounts) -> wire.Resources:
    """CPU, memory and accelerators on the wire."""
    return wire.Resources(
        milli_cpu=amounts.milli_cpu,
        memory_bytes=amounts.memory_bytes,
        accelerators=dict(amounts.accelerators),
    )


def read_resources(sent: wire.Resources) -> Amounts:
    """CPU, memory and accelerators from the wire."""
    kinds = tuple(sorted((kind, count) for kind, count in sent.accelerators.items() if count))
    return Amounts(sent.milli_cpu, sent.memory_bytes, kinds)


def _node(one: HostedNode) -> wire.WorkloadNode:
    node = one.node
    return wire.WorkloadNode(
        name=node.name,
        allocatable=resources(node.allocatable),
        labels=dict(node.labels),
        taints=[
            wire.NodeTaint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in node.taints
        ],
        cordoned=node.cordoned,
        most_pods=node.most_pods,
        others=resources(one.others),
        other_pods=one.other_pods,
    )


def _read_node(sent: wire.WorkloadNode) -> HostedNode:
    return HostedNode(
        node=Node(
            name=sent.name,
            allocatable=read_resources(sent.allocatable),
            labels=sent.labels,
            taints=tuple(Taint(one.key, one.value, one.effect) for one in sent.taints),
            cordoned=sent.cordoned,
            most_pods=sent.most_pods,
        ),
        others=read_resources(sent.others),
        other_pods=sent.other_pods,
    )


def _pods(one: PodGroup, constraints: int) -> wire.WorkloadPods:
    request = one.request
    kind = (request.accelerator_kinds or ("",))[0]
    accelerators = {kind: request.accelerators} if request.accelerators else {}
    return wire.WorkloadPods(
        job=one.job,
        role=one.role,
        node=one.node,
        count=one.count,
        request=wire.Resources(
            milli_cpu=request.milli_cpu,
            memory_bytes=request.memory_bytes,
            accelerators=accelerators,
        ),
        constraints=constraints,
        priority=one.priority,
        created=max(0.0, one.created_seconds),
    )


def _read_pods(sent: wire.WorkloadPods, constraints: Sequence[Constraints]) -> PodGroup:
    [(kind, count)] = list(sent.request.accelerators.items())[:1] or [("", 0)]
    known = sent.constraints < len(constraints)
    request = Request(
        milli_cpu=sent.request.milli_cpu,
        memory_bytes=sent.request.memory_bytes,
        accelerators=count,
        accelerator_kinds=(kind,) if count and kind else (),
        constraints=constraints[sent.constraints] if known else ANYWHERE,
    )
    return PodGroup(
        job=sent.job,
        role=sent.role,
        node=sent.node,
        request=request,
        count=sent.count,
        priority=sent.priority,
        created_seconds=sent.created,
    )


def _constraints(one: Constraints) -> wire.PodConstraints:
    return wire.PodConstraints(
        node_selector=dict(one.node_selector),
        affinity=None if one.affinity is None else [_term(term) for term in one.affinity],
        tolerations=[
            wire.PodToleration(
                key=each.key, operator=each.operator, value=each.value, effect=each.effect
            )
            for each in one.tolerations
        ],
    )


def _read_constraints(sent: wire.PodConstraints) -> Constraints:
    return replace(
        ANYWHERE,
        node_selector=tuple(sorted(sent.node_selector.items())),
        affinity=(
            None
            if sent.affinity is None
            else tuple(Term(_read(term.labels), _read(term.fields)) for term in sent.affinity)
        ),
        tolerations=tuple(
            Toleration(each.key, each.operator, each.value, each.effect)
            for each in sent.tolerations
        ),
    )


def _term(term: Term) -> wire.AffinityTerm:
    return wire.AffinityTerm(
        labels=[_expression(one) for one in term.labels],
        fields=[_expression(one) for one in term.fields],
    )


def _expression(one: Expression) -> wire.LabelExpression:
    return wire.LabelExpression(key=one.key, operator=one.operator, values=list(one.values))


def _read(sent: Sequence[wire.LabelExpression]) -> tuple[Expression, ...]:
    return tuple(Expression(one.key, one.operator, tuple(one.values)) for one in sent)
