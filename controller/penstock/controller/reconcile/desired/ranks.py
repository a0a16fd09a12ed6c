"""Which pods should be made, kept, resized and removed: one role at a time, one rank at a time.

The rules that keep an incarnation from ever being used by two pods, whatever crashes when:

* An incarnation is *reserved* by writing it to the job's status, before its pod is created. A rank
  below the recorded ``desired`` that has no record of its own is reserved at incarnation 0; ranks
  of data workers, which need not be contiguous, always have a record.
* A reserved incarnation without a pod is created only by the process that reserved it and has not
  tried yet (`Observed.reserved`). To anybody else it is spent: its pod may have come and gone.
* Before a pod is removed, the rank's incarnation is raised. So a pod of a lower incarnation than
  the recorded one is one that we want gone, and a pod of the recorded one that is being deleted or
  is gone was taken by somebody else.
* Where the status says that every pod existed when it was last written, a missing pod was lost and
  counts as a preemption; otherwise it is uncertain whether it ever was, and nothing is counted.

A pod that must be replaced though it runs well (other resources, other node, ``minIncarnation``) is
kept until its successor is Ready.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Role
from penstock.controller.reconcile.desired import own_scales
from penstock.controller.reconcile.desired.replacement import (
    Cause,
    Decision,
    Finding,
    Response,
    classify,
    decide,
    startup_reason,
)
from penstock.controller.reconcile.desired.targets import RankTarget, RoleTarget, Target
from penstock.controller.reconcile.model.actions import Alarm, CreateScale, ResizePod
from penstock.controller.reconcile.model.observed import (
    Observed,
    Pod,
    RankRecord,
    RoleCounts,
    Scale,
)
from penstock.crds.conditions import JobReason, ScaleCondition
from penstock.crds.elasticjob import ElasticJobSpec, FailurePolicy
from penstock.crds.main_container import main_index


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason for which the job as a whole fails."""

    reason: JobReason
    message: str
    pod: Pod | None = None
    container: str = ""


@dataclass(slots=True)
class RolePlan:
    """What is to be done about one role, and what was found on the way."""

    role: str
    records: dict[int, RankRecord]
    create: list[tuple[int, int]] = field(default_factory=list)
    spared: list[tuple[int, int]] = field(default_factory=list)
    remove: list[tuple[Pod, str]] = field(default_factory=list)
    resize: list[ResizePod] = field(default_factory=list)
    scales: list[CreateScale] = field(default_factory=list)
    wanted: frozenset[int] = frozenset()
    current: dict[int, Pod] = field(default_factory=dict)
    succeeded: set[int] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    blocked: list[tuple[JobReason, str]] = field(default_factory=list)
    unschedulable: dict[int, Finding] = field(default_factory=dict)
    out_of_memory: list[Pod] = field(default_factory=list)
    leaving: int = 0
    failed_before: int = 0
    succeeded_before: int = 0

    @property
    def reserves(self) -> frozenset[tuple[str, int, int]]:
        """Incarnations that no pod has had, once the records are written."""
        return frozenset((self.role, *one) for one in (*self.create, *self.spared))

    @property
    def counts(self) -> RoleCounts:
        """The counts of the role as its status shows them."""
        current = [
            pod
            for rank, pod in self.current.items()
            if rank in self.wanted and pod.live and rank not in self.succeeded
        ]
        return RoleCounts(
            desired=len(self.wanted),
            created=len(current),
            ready=sum(pod.ready for pod in current),
            succeeded=max(len(self.succeeded), self.succeeded_before),
            failed=len(self.failures) or self.failed_before,
        )

    @property
    def settled(self) -> bool:
        """Whether every pod exists as it should and every other one is gone."""
        there = {rank for rank, pod in self.current.items() if pod.live} | self.succeeded
        return not (self.create or self.remove or self.resize or self.leaving) and (
            self.wanted <= there
        )


def recorded(observed: Observed, role: str) -> dict[int, RankRecord]:
    """What the job's status records of the ranks of a role, the implied zeros included.

    A pod of a later incarnation than was recorded can only mean that the record was lost; the
    pod's incarnation is then taken for recorded.
    """
    status = observed.job.status
    if role == TRAINER_ROLE:
        records = {} if status.trainer is None else {0: status.trainer}
    else:
        records = dict(status.ranks.get(role, {}))
        if role not in DATA_ROLES:
            for rank in range(status.counts.get(role, RoleCounts()).desired):
                records.setdefault(rank, RankRecord())
    for pod in observed.pods:
        if pod.role == role:
            known = records.get(pod.rank)
            if known is None or known.incarnation < pod.incarnation:
                records[pod.rank] = dataclasses.replace(
                    known or RankRecord(), incarnation=pod.incarnation
                )
    return records


def choose_data_ranks(
    count: int, pods: Iterable[Pod], records: Mapping[int, RankRecord]
) -> frozenset[int]:
    """The ranks that data workers should have: those they have, as far as possible.

    To go are first those that do not run, then those with the lowest deletion cost, then the
    highest ranks; to come are the lowest free ranks.
    """
    newest = {
        pod.rank: pod
        for pod in pods
        if pod.rank in records and pod.incarnation == records[pod.rank].incarnation
    }
    keep = sorted(newest.values(), key=lambda pod: (not pod.live, -pod.deletion_cost, pod.rank))[
        :count
    ]
    ranks = {pod.rank for pod in keep}
    free = (rank for rank in range(2 * count + 1) if rank not in ranks)
    while len(ranks) < count:
        ranks.add(next(free))
    return frozenset(ranks)


class RolePlanner:
    """Plans one role of one job; `plan` is its one use."""

    def __init__(
        self,
        observed: Observed,
        spec: ElasticJobSpec,
        role: str,
        target: Target,
        seen: Mapping[str, frozenset[str]],
        alarm: Alarm,
        now: datetime,
    ) -> None:
        self._observed = observed
        self._spec = spec
        self._role = role
        self._target = target
        self._role_target = (
            RoleTarget(replicas=1) if role == TRAINER_ROLE else target.role(Role(role))
        )
        self._seen = seen
        self._alarm = alarm
        self._now = now
        self._pods = [pod for pod in observed.pods if pod.role == role]
        self._plan = RolePlan(role, recorded(observed, role))
        self._lowering = False
        written = observed.job.status.counts.get(role, RoleCounts())
        self._written_desired = written.desired
        self._all_existed = 0 < written.desired <= written.created + written.succeeded

    def plan(self, *, wanted: bool) -> RolePlan:
        """What to do.

        Args:
            wanted: False where the role should have no pods at all (suspended, not started).
        """
        plan = self._plan
        self._lowering = wanted and self._role not in (TRAINER_ROLE, *DATA_ROLES)
        plan.wanted = self._wanted_ranks() if wanted else frozenset()
        by_rank: dict[int, list[Pod]] = {}
        for pod in self._pods:
            by_rank.setdefault(pod.rank, []).append(pod)
        ranks = set(by_rank) | plan.wanted
        if self._lowering:
            ranks |= set(range(self._written_desired))
        for rank in sorted(ranks):
            pods = by_rank.get(rank, [])
            if rank in plan.wanted:
                self._plan_rank(rank, pods)
            else:
                self._give_up(rank, pods)
        self._ask_for_memory()
        return plan

    def _wanted_ranks(self) -> frozenset[int]:
        if self._role in DATA_ROLES:
            return choose_data_ranks(self._role_target.total, self._pods, self._plan.records)
        return frozenset(range(self._role_target.total))

    def _give_up(self, rank: int, pods: list[Pod]) -> None:
        plan = self._plan
        record = plan.records.get(rank, RankRecord())
        implied = rank not in self._observed.job.status.ranks.get(self._role, {})
        if (self._lowering and implied and not pods) or any(
            pod.incarnation == record.incarnation for pod in pods
        ):
            plan.records[rank] = dataclasses.replace(record, incarnation=record.incarnation + 1)
            plan.spared.append((rank, record.incarnation + 1))
        for pod in pods:
            if pod.live:
                plan.remove.append((pod, "the target has no such rank"))
            elif not pod.ended:
                plan.leaving += 1

    def _plan_rank(self, rank: int, pods: list[Pod]) -> None:
        plan, record = self._plan, self._plan.records.get(rank)
        target = self._role_target.rank(rank)
        current = next(
            (pod for pod in pods if record and pod.incarnation == record.incarnation), None
        )
        if current is None:
            self._fill(rank, record, target)
        else:
            plan.current[rank] = current
            self._inspect(rank, current, record or RankRecord(), target)
        successor_ready = current is not None and (current.ready or current.ended)
        for pod in pods:
            if pod is current:
                continue
            if pod.live and (successor_ready or not pod.ready):
                plan.remove.append((pod, "a newer incarnation has taken its place"))
            elif not pod.ended:
                plan.leaving += 1

    def _fill(self, rank: int, record: RankRecord | None, target: RankTarget) -> None:
        """A rank without its newest pod: create it, or count it as lost and take the next one."""
        if record is None:
            self._next(rank, RankRecord(incarnation=-1), target)
        elif (self._role, rank, record.incarnation) in self._observed.reserved:
            self._plan.create.append((rank, record.incarnation))
        elif self._all_existed and self._role not in DATA_ROLES:
            gone = Finding(Cause.PREEMPTED, f"the pod of {self._role}-{rank} is gone")
            self._apply(rank, None, gone, record, target)
        else:
            self._next(rank, record, target)

    def _next(self, rank: int, record: RankRecord, target: RankTarget) -> None:
        incarnation = max(record.incarnation + 1, target.min_incarnation)
        self._plan.records[rank] = dataclasses.replace(record, incarnation=incarnation)
        self._plan.create.append((rank, incarnation))

    def _inspect(self, rank: int, pod: Pod, record: RankRecord, target: RankTarget) -> None:
        finding = classify(pod, self._seen)
        if finding.cause is Cause.OUT_OF_MEMORY and pod.memory_bytes is None:
            finding = dataclasses.replace(
                finding,
                cause=Cause.ERROR,
                detail=f"{finding.detail}; it requests no memory, so there is nothing to double:"
                " set resources.requests.memory in the template",
            )
        if self._role in DATA_ROLES and finding.at is None and pod.ended:
            finding = dataclasses.replace(finding, at=pod.created)
        self._apply(rank, pod, finding, record, target)

    def _apply(
        self, rank: int, pod: Pod | None, finding: Finding, record: RankRecord, target: RankTarget
    ) -> None:
        policy: FailurePolicy = self._spec.failure_policy
        decision = decide(self._role, finding, record, policy, self._now)
        if decision.fails_with is not None:
            self._plan.failures.append(
                Failure(decision.fails_with, decision.message, pod, finding.container)
            )
            return
        match decision.response:
            case Response.KEEP:
                if pod is not None:
                    self._conform(rank, pod, record, target)
            case Response.DONE:
                self._plan.succeeded.add(rank)
            case Response.RESTART | Response.PREEMPTION:
                self._replace(rank, pod, decision, target)
            case Response.BACK_OFF:
                if decision.not_before is None or decision.not_before <= self._now:
                    self._replace(rank, pod, decision, target)
                else:
                    self._alarm.at(decision.not_before)
            case Response.MORE_MEMORY | Response.MORE_SERVERS:
                assert pod is not None
                self._out_of_memory(rank, pod, finding, record, target)
            case Response.WAIT:
                self._wait(rank, pod, finding, decision, record, target)
            case Response.WAIT_THEN_FAIL:
                self._plan.blocked.append((startup_reason(finding.cause), decision.message))
                self._alarm.at(decision.check_at)
                if pod is not None:
                    self._conform(rank, pod, record, target)

    def _wait(
        self,
        rank: int,
        pod: Pod | None,
        finding: Finding,
        decision: Decision,
        record: RankRecord,
        target: RankTarget,
    ) -> None:
        if finding.cause is not Cause.UNSCHEDULABLE:
            self._plan.blocked.append((startup_reason(finding.cause), decision.message))
        elif decision.check_at is not None and decision.check_at <= self._now:
            self._plan.unschedulable[rank] = finding
        else:
            self._alarm.at(decision.check_at)
        if pod is not None:
            self._conform(rank, pod, record, target)

    def _replace(self, rank: int, pod: Pod | None, decision: Decision, target: RankTarget) -> None:
        if pod is not None and pod.live:
            self._plan.remove.append((pod, decision.message))
        self._plan.replaced.append(decision.message)
        self._next(rank, decision.record, target)

    def _conform(self, rank: int, pod: Pod, record: RankRecord, target: RankTarget) -> None:
        """Bring a pod that runs to the target: resize it in place, or put another one beside it."""
        misplaced = bool(pod.node) and pod.node in target.avoid_nodes
        if pod.incarnation < target.min_incarnation or misplaced:
            self._next(rank, record, target)
            return
        cpu = target.cpu_milli if target.cpu_milli != pod.cpu_milli else None
        memory = target.memory_bytes if target.memory_bytes != pod.memory_bytes else None
        if cpu is None and memory is None:
            return
        in_place = (
            self._observed.unresizable.isdisjoint({pod.uid})
            and not pod.resize_infeasible
            and bool(pod.node)
        )
        if in_place:
            container = _main_container(self._spec, self._role, pod)
            self._plan.resize.append(ResizePod(pod.name, pod.uid, container, cpu, memory))
        else:
            self._next(rank, record, target)

    def _out_of_memory(
        self, rank: int, pod: Pod, finding: Finding, record: RankRecord, target: RankTarget
    ) -> None:
        role = Role(self._role)
        assert pod.memory_bytes is not None
        answer = own_scales.covering(self._observed.scales, role, pod)
        if answer is not None and answer.is_true(ScaleCondition.FAILED) and role is not Role.PS:
            why = answer.conditions[ScaleCondition.FAILED].message
            text = f"{finding.detail}; Scale {answer.name} failed: {why}"
            self._plan.failures.append(
                Failure(JobReason.OUT_OF_MEMORY, text, pod, finding.container)
            )
        elif role is Role.PS:
            self._server_out_of_memory(rank, pod, finding, record, target, answer)
        elif answer is not None and _decided(answer):
            self._after_answer(rank, pod, finding, record, target)
        elif answer is None:
            if (target.memory_bytes or 0) >= 2 * pod.memory_bytes:
                self._plan.replaced.append(finding.detail)
                self._next(rank, record, target)
            else:
                self._plan.out_of_memory.append(pod)

    def _after_answer(
        self, rank: int, pod: Pod, finding: Finding, record: RankRecord, target: RankTarget
    ) -> None:
        """Replace a pod that ran out of memory; free of charge only if the rank now gets more."""
        if (target.memory_bytes or 0) > (pod.memory_bytes or 0):
            self._replace_free(rank, pod, finding, record, target)
        else:
            self._charge(rank, pod, finding, record, target, "a pin keeps its memory as it is")

    def _replace_free(
        self, rank: int, pod: Pod, finding: Finding, record: RankRecord, target: RankTarget
    ) -> None:
        self._replace(
            rank, pod, Decision(Response.MORE_MEMORY, record, message=finding.detail), target
        )

    def _charge(
        self,
        rank: int,
        pod: Pod,
        finding: Finding,
        record: RankRecord,
        target: RankTarget,
        why: str,
    ) -> None:
        """Replace a pod whose lack of memory cannot be helped: it counts against maxRestarts."""
        text = f"{finding.detail}; {why}"
        failed = dataclasses.replace(finding, cause=Cause.ERROR, detail=text)
        self._apply(rank, pod, failed, record, target)

    def _server_out_of_memory(
        self,
        rank: int,
        pod: Pod,
        finding: Finding,
        record: RankRecord,
        target: RankTarget,
        answer: Scale | None,
    ) -> None:
        """More servers, or where those did not help or cannot be had more memory.

        A server is replaced before the trainer has consented to either, so whether an answer came
        to nothing shows only when the next pod of its rank dies with no more memory than before.
        """
        why = own_scales.memory_in_vain(self._observed.scales, pod) if answer is None else ""
        if why and (target.memory_bytes or 0) <= (pod.memory_bytes or 0):
            self._charge(rank, pod, finding, record, target, why)
            return
        if answer is None:
            self._more_servers(pod)
        self._replace_free(rank, pod, finding, record, target)

    def _more_servers(self, pod: Pod) -> None:
        scales = self._observed.scales
        vain = own_scales.was_answered_by_servers(
            scales, pod.rank
        ) or own_scales.more_servers_failed(scales)
        scale = (
            None
            if vain
            else own_scales.more_servers(self._observed.job, self._spec, pod, self._target)
        )
        if scale is None:
            self._plan.out_of_memory.append(pod)
        elif not self._plan.scales:
            self._plan.scales.append(scale)

    def _ask_for_memory(self) -> None:
        if self._plan.out_of_memory:
            self._plan.scales.append(
                own_scales.more_memory(
                    self._observed.job,
                    Role(self._role),
                    self._plan.out_of_memory,
                    self._observed.scales,
                )
            )


def _decided(scale: Scale) -> bool:
    return scale.is_true(ScaleCondition.ADMITTED) and not scale.is_true(ScaleCondition.FAILED)


def _main_container(spec: ElasticJobSpec, role: str, pod: Pod) -> str:
    """The container that a Scale resizes; by the template where the pod's own is not known."""
    if pod.main is not None:
        return pod.main.name
    declared = spec.replica_specs.by_role().get(Role(role), spec.replica_specs.worker)
    containers = declared.template["spec"]["containers"]
    name: str = containers[main_index(containers)]["name"]
    return name
