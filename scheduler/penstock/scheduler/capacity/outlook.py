"""What a change of the nodes would do, by the scheduler's own placing of pods.

The cluster is put together twice, as it is and as it would be; in both, the pods that wait are
placed one after the other by the scheduler's engine and policy, those of higher priority first,
then those of the job that has waited longest. What differs is what the change does.

Guarantees: no pod is placed where it does not fit, or may not be; a gang is placed as a whole or
not at all; asking changes nothing.

Not looked at: who would be preempted for whom; pods that are not there yet, such as those of jobs
that wait for quota or would grow; spreading constraints and volumes, which kube-scheduler adds to
what fits. Where it places pods, it may choose another node among those that fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.base.enums import Role
from penstock.scheduler.capacity.change import Change
from penstock.scheduler.capacity.workload import HostedNode, PodGroup, Workload
from penstock.scheduler.fragmentation import of_cluster
from penstock.scheduler.objects import NOTHING, Amounts, Pod
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.placement.snapshot import Snapshot
from penstock.scheduler.request import WHOLE_DEVICE_MILLI

_GANG: Final = frozenset({Role.WORKER.in_names, Role.PS.in_names})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """A cluster once every pod that fits has been placed; cores and accelerators that take pods.

    Attributes:
        stranded_accelerators: that nobody can use for lack of CPU; the other way round
            `stranded_cpu_cores` (`penstock.scheduler.fragmentation`).
        waiting_pods: that fit nowhere.
    """

    nodes: int
    cpu_cores: float
    free_cpu_cores: float
    accelerators: float
    free_accelerators: float
    stranded_accelerators: float
    stranded_cpu_cores: float
    waiting_pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutlook:
    """One job; each is a number of pods by role.

    Attributes:
        running: that have a node now.
        waiting: that wait for one now.
        lost: of the running ones, whose node would go.
        before, after: that have a node once everything that fits is placed.
        held_before, held_after: what those request together.
    """

    uid: str
    running: Mapping[str, int]
    waiting: Mapping[str, int]
    lost: Mapping[str, int]
    before: Mapping[str, int]
    after: Mapping[str, int]
    held_before: Amounts = NOTHING
    held_after: Amounts = NOTHING

    @property
    def changes(self) -> bool:
        """Whether the change of the nodes says anything to it."""
        return bool(self.lost) or self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a change would do. `others_lost`: what pods of no job hold of the nodes that go."""

    change: Change
    before: ClusterFigures
    after: ClusterFigures
    jobs: tuple[JobOutlook, ...]
    others_lost: Amounts


def outlook(workload: Workload, change: Change, policy: str = "stranding") -> Outlook:
    """What a change of the nodes would do to the jobs that run and wait.

    Args:
        workload: the cluster now.
        change: the nodes that come and go.
        policy: the scheduler's placement policy.

    Raises:
        UnknownPolicyError: no placement policy has this name.
    """
    gone = frozenset(change.removed)
    stay = [one for one in workload.nodes if one.node.name not in gone]
    then = [replace(one, node="") if one.node in gone else one for one in workload.pods]
    before = _Cluster(workload.nodes, workload.pods, policy)
    after = _Cluster((*stay, *change.added), then, policy)
    before.settle(workload)
    after.settle(workload)
    uids = sorted({one.job for one in workload.pods if one.job})
    running = _counts(workload.pods, lambda one: bool(one.node))
    waiting = _counts(workload.pods, lambda one: not one.node)
    lost = _counts(workload.pods, lambda one: one.node in gone)
    placed_before, placed_after = before.placed(), after.placed()
    lost_others = NOTHING
    for one in workload.nodes:
        if one.node.name in gone:
            lost_others = lost_others.plus(one.others)
    return Outlook(
        change=change,
        before=before.figures(),
        after=after.figures(),
        jobs=tuple(
            JobOutlook(
                uid=uid,
                running=running.get(uid, {}),
                waiting=waiting.get(uid, {}),
                lost=lost.get(uid, {}),
                before=placed_before.get(uid, {}),
                after=placed_after.get(uid, {}),
                held_before=before.held(uid),
                held_after=after.held(uid),
            )
            for uid in uids
        ),
        others_lost=lost_others,
    )


def hold_others(snapshot: Snapshot, nodes: Iterable[HostedNode]) -> None:
    """Put what pods of no job hold into a snapshot; best before the nodes are."""
    for one in nodes:
        # Each pod of no job takes a place; one of them holds what they hold together.
        for number in range(one.other_pods):
            held = one.others if number == 0 else NOTHING
            snapshot.upsert_pod(Pod(f"other:{one.node.name}:{number}", one.node.name, held))
        if not one.other_pods and one.others != NOTHING:
            snapshot.upsert_pod(Pod(f"other:{one.node.name}", one.node.name, one.others))


class _Cluster:
    """Nodes and pods put together, on which those that wait are placed."""

    def __init__(self, nodes: Iterable[HostedNode], pods: Iterable[PodGroup], policy: str) -> None:
        self._pods = list(pods)
        self._snapshot = snapshot = Snapshot()
        columns = snapshot.columns
        generator = np.random.default_rng(0)
        self._placer = Placer(
            columns, make_policy(policy, Context(generator, {})), eligible=snapshot.eligible
        )
        self._there: Counter[tuple[str, str]] = Counter()
        self._held: dict[str, Amounts] = {}
        self._waiting = 0
        # Pods before their nodes: a node is then added up once.
        there = list(nodes)
        hold_others(snapshot, there)
        for index, group in enumerate(self._pods):
            if group.node:
                for number in range(group.count):
                    snapshot.upsert_pod(Pod(f"{index}:{number}", group.node, _held(group)))
                self._there[group.job, group.role] += group.count
                self._hold(group, group.count)
        for one in there:
            snapshot.upsert_node(one.node)

    def _hold(self, group: PodGroup, count: int) -> None:
        each = _held(group)
        together = Amounts(
            each.milli_cpu * count,
            each.memory_bytes * count,
            tuple((kind, number * count) for kind, number in each.accelerators),
        )
        held = self._held.get(group.job, NOTHING).plus(together)
        self._held[group.job] = held

    def settle(self, workload: Workload) -> None:
        """Place what waits, as far as it fits."""
        for group in self._pods:
            for _ in range(group.count):
                self._placer.observe(group.request)
        by_job: dict[str, list[tuple[int, PodGroup]]] = {}
        for index, group in enumerate(self._pods):
            if not group.node:
                # Pods of no job have nothing to do with one another.
                by_job.setdefault(group.job or f"pod:{index}", []).append((index, group))
        order = sorted(
            by_job.items(),
            key=lambda item: (
                -max(group.priority for _, group in item[1]),
                min(group.created_seconds for _, group in item[1]),
                item[0],
            ),
        )
        for uid, groups in order:
            job = workload.jobs.get(uid)
            self._place(groups, 0 if job is None else job.together)

    def _place(self, groups: list[tuple[int, PodGroup]], together: int) -> None:
        placed: list[str] = []
        counts: Counter[tuple[str, str]] = Counter()
        by_group: Counter[int] = Counter()
        for index, group in sorted(groups, key=lambda item: (item[1].role, item[0])):
            for number in range(group.count):
                uid = f"{index}:{number}"
                if self._snapshot.place(self._placer, uid, group.request, 0.0) is None:
                    break  # the others ask for the same
                placed.append(uid)
                counts[group.job, group.role] += 1
                by_group[index] += 1
        jobs = {group.job for _, group in groups}
        there = sum(self._there[job, role] + counts[job, role] for job in jobs for role in _GANG)
        if there < together:
            for uid in placed:
                self._snapshot.release(uid)
            counts.clear()
            by_group.clear()
        self._there += counts
        for index, count in by_group.items():
            self._hold(self._pods[index], count)
        self._waiting += sum(group.count for _, group in groups) - counts.total()

    def placed(self) -> dict[str, dict[str, int]]:
        """By job, the pods that have a node, by role."""
        found: dict[str, dict[str, int]] = {}
        for (uid, role), count in sorted(self._there.items()):
            found.setdefault(uid, {})[role] = count
        return found

    def held(self, job: str) -> Amounts:
        """What these request together."""
        return self._held.get(job, NOTHING)

    def figures(self) -> ClusterFigures:
        """What there is, what is free and what of it strands."""
        columns = self._snapshot.columns
        rows = columns.rows()
        usable = rows[columns.schedulable[rows]]
        stranded = of_cluster(columns)
        return ClusterFigures(
            nodes=len(rows),
            cpu_cores=float(columns.total_milli_cpu[usable].sum()) / 1000,
            free_cpu_cores=float(np.maximum(0, columns.free_milli_cpu[usable]).sum()) / 1000,
            accelerators=float(columns.total_accelerator_milli[usable].sum()) / WHOLE_DEVICE_MILLI,
            free_accelerators=(
                float(columns.free_accelerator_milli[usable].sum()) / WHOLE_DEVICE_MILLI
            ),
            stranded_accelerators=stranded.stranded_accelerators,
            stranded_cpu_cores=stranded.stranded_cpu_cores,
            waiting_pods=self._waiting,
        )


def _held(group: PodGroup) -> Amounts:
    request = group.request
    kinds = request.accelerator_kinds[:1]
    accelerators = tuple((kind, request.accelerators) for kind in kinds if request.accelerators)
    return Amounts(request.milli_cpu, request.memory_bytes, accelerators)


def _counts(
    pods: Iterable[PodGroup], wanted: Callable[[PodGroup], bool]
) -> dict[str, dict[str, int]]:
    """By job, how many pods of each role are wanted."""
    found: dict[str, dict[str, int]] = {}
    for one in sorted(pods, key=lambda group: group.role):
        if wanted(one):
            own = found.setdefault(one.job, {})
            own[one.role] = own.get(one.role, 0) + one.count
    return found
