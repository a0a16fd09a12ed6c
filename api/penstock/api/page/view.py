"""What the page shows, gathered from the services and put into words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from statistics import median
from typing import Any, Final

from penstock.api.page.axis import figure
from penstock.api.page.comparison import Compared, Comparison
from penstock.api.page.input_panel import InputPanel, input_panel
from penstock.api.page.node_map import HeatMap, NodeMap, NodeState, heat_map, node_map
from penstock.api.page.pod_use import UseLine, use_lines
from penstock.api.page.share_panel import SharePanel, share_panel
from penstock.api.page.timeline import PlanMark, Point, Timeline, timeline
from penstock.api.present.plans import plan as present_plan
from penstock.api.present.profiles import input_view
from penstock.api.present.samples import role_uses
from penstock.base.enums import Source
from penstock.base.targets import RoleTarget
from penstock.brain.assembly import Brain
from penstock.brain.errors import NoProfileError
from penstock.brain.model import gpu_use
from penstock.brain.model.gpu_use import GpuUse
from penstock.brain.rank_columns import unpack
from penstock.brain.store.tables import JobRow, PlanRow
from penstock.wire.cluster import Allocation
from penstock.wire.plans import Plan

JOBS_PER_PAGE: Final = 25
_MOST_PLANS: Final = 200
_MOST_POINTS: Final = 2000
_MOST_UNPACKED: Final = 150
"""Of so many samples the GPUs are drawn: a sample of thousands of ranks takes long to unpack."""
_HEAT_SECONDS: Final = 6 * 3600.0
_MOST_MOMENTS: Final = 72


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of the table."""

    uid: str
    name: str
    namespace: str
    phase: str
    strategy: str
    step: str
    speed: str
    workers: int
    plan: int | None
    pinned: bool
    seen: str
    selected: bool


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One plan of a job."""

    number: int
    time: str
    who: str
    stage: str
    change: str
    message: str
    predicted: str
    measured: str
    by_person: bool
    held: bool
    current: bool
    anchor: str
    seconds: float
    by_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """The job that was chosen."""

    line: JobLine
    message: str
    chart: Timeline | None
    uses: Sequence[UseLine]
    """By role, of the newest sample."""
    shows_gpus: bool
    plans: Sequence[PlanLine]
    plans_left_out: int
    input: InputPanel | None = None
    """Where the time of its input goes; None: nothing was measured."""
    share: SharePanel | None = None
    """What it shares with other jobs; None: nothing."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The nodes."""

    time: str
    stranded_gpus: str
    stranded_cpu_cores: str
    nodes: NodeMap | None
    heat: HeatMap | None
    table: Sequence[NodeState]


@dataclass(frozen=True, slots=True)
class PageView:
    """Everything on the page."""

    jobs: Sequence[JobLine] = ()
    following: str | None = None
    counts: Sequence[tuple[str, int]] = ()
    job: JobView | None = None
    cluster: ClusterView | None = None
    problem: str = ""
    filters: dict[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None


def job_line(row: JobRow, now: float, selected: str | None) -> JobLine:
    """A job in words."""
    return JobLine(
        uid=row.uid,
        name=row.name,
        namespace=row.namespace,
        phase=row.phase,
        strategy=row.strategy,
        step=f"{row.step:,}",
        speed=figure(row.steps_per_second),
        workers=row.world_size,
        plan=row.current_plan,
        pinned=row.pinned_plan is not None,
        seen=ago(now - row.last_seen_seconds),
        selected=row.uid == selected,
    )


async def job_view(brain: Brain, row: JobRow) -> JobView:
    """One job with its plans and what it measured."""
    rows = await brain.plans.page(row.uid, after=0, limit=_MOST_PLANS + 1)
    left_out = max(0, row.plan_count - _MOST_PLANS)
    if left_out:
        rows = await brain.plans.page(row.uid, after=left_out, limit=_MOST_PLANS)
    plans = [present_plan(each) for each in rows]
    points = await _points(brain, row)
    measured = measured_speeds(rows, points)
    decided = await _decisions(brain, row.uid)
    chart = timeline(points, [_mark(plan) for plan in plans] + [_scheduled(one) for one in decided])
    newest = await brain.samples.newest(row.uid, 1)
    uses = use_lines(role_uses(newest[-1].ranks)) if newest else []
    now = brain.clock()
    return JobView(
        line=job_line(row, now, row.uid),
        message=row.message,
        chart=chart,
        uses=uses,
        shows_gpus=any(line.gpus for line in uses),
        plans=sorted(
            [
                *(
                    _plan_line(plan, measured.get(plan.id), plan.id == row.current_plan)
                    for plan in plans
                ),
                *(_decision_line(one) for one in decided),
            ],
            key=lambda line: (line.seconds, line.number),
            reverse=True,
        ),
        plans_left_out=left_out,
        input=await _input(brain, row.uid, now),
        share=await _share(brain, row),
    )


async def compared(brain: Brain, row: JobRow) -> Compared:
    """One of two jobs that are shown side by side."""
    try:
        view = input_view(await brain.profiles.state(row.uid))
    except NoProfileError:
        view = None
    return Compared(
        name=row.name,
        phase=row.phase,
        strategy=row.strategy,
        step=f"{row.step:,}",
        steps_per_second=row.steps_per_second,
        workers=row.world_size,
        plans=row.plan_count,
        input=view,
    )


async def cluster_view(brain: Brain) -> ClusterView | None:
    """The nodes now, and over the last hours."""
    snapshot = await brain.cluster.newest()
    if snapshot is None:
        return None
    history = await brain.cluster.fragmentation(
        600 if brain.clock() - snapshot.time_seconds < _HEAT_SECONDS else 60,
        start=snapshot.time_seconds - _HEAT_SECONDS,
        end=None,
        after=None,
        limit=_MOST_MOMENTS,
    )
    if len(history) < 12:
        history = await brain.cluster.fragmentation(
            60,
            start=snapshot.time_seconds - _MOST_MOMENTS * 60,
            end=None,
            after=None,
            limit=_MOST_MOMENTS,
        )
    nodes = [
        NodeState(
            name=str(node["name"]),
            fragmentation=float(node["fragmentation"]),
            free_cores=node["free_milli_cpu"] / 1000,
            cores=node["milli_cpu"] / 1000,
            free_accelerators=node["free_accelerators"],
            accelerators=node["accelerators"],
            cordoned=node["cordoned"],
        )
        for node in snapshot.nodes
    ]
    return ClusterView(
        time=clock_time(snapshot.time_seconds),
        stranded_gpus=figure(snapshot.stranded_gpus),
        stranded_cpu_cores=figure(snapshot.stranded_cpu_cores),
        nodes=node_map(nodes),
        heat=heat_map([(each.time_seconds, each.nodes) for each in history]),
        table=sorted(nodes, key=lambda node: node.fragmentation)[:100],
    )


def measured_speeds(rows: Sequence[PlanRow], points: Sequence[Point]) -> dict[int, float]:
    """Median speed under each plan that has settled, by number, as far as the points reach."""
    in_force = [row for row in rows if not row.held]
    found = {}
    for row, following in zip_longest(in_force, in_force[1:]):
        if row.settled_seconds is None:
            continue
        until = following.created_seconds if following is not None else float("inf")
        speeds = [
            point.steps_per_second
            for point in points
            if row.settled_seconds < point.time_seconds <= until
        ]
        if speeds:
            found[row.number] = median(speeds)
    return found


def ago(seconds: float) -> str:
    """A duration in words."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def clock_time(seconds: float) -> str:
    """A moment in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def changes(roles: dict[str, RoleTarget]) -> str:
    """What a plan changes, in words."""
    parts = []
    for role, target in roles.items():
        said = []
        if target.replicas is not None:
            said.append(f"{target.replicas}")
        if target.spare_replicas:
            said.append(f"+{target.spare_replicas} spare")
        if target.resources is not None and target.resources.cpu:
            said.append(f"\N{MULTIPLICATION SIGN} {target.resources.cpu} CPU")
        if target.resources is not None and target.resources.memory:
            said.append(target.resources.memory)
        if target.ranks:
            ranks = ", ".join(str(rank) for rank in sorted(target.ranks))
            said.append(f"(rank {ranks})")
        parts.append(f"{role}: {' '.join(said)}")
    return "; ".join(parts) or "no pods"


def _mark(plan: Plan) -> PlanMark:
    return PlanMark(
        number=plan.id,
        time_seconds=plan.created_seconds,
        label=f"plan {plan.id}: {changes({role.value: of for role, of in plan.roles.items()})}",
        by_person=plan.source is Source.USER,
        held=plan.held,
        anchor=f"plan-{plan.id}",
    )


def _scheduled(decision: Allocation) -> PlanMark:
    return PlanMark(
        number=0,
        time_seconds=decision.time,
        label=f"scheduler: {decision.message}",
        by_person=False,
        by_scheduler=True,
        anchor=_anchor(decision),
    )


def _decision_line(decision: Allocation) -> PlanLine:
    figures = decision.figures
    change = f"data worker on {decision.node}" if decision.node else ""
    if "data_workers" in figures:
        change = f"dataWorker: {figures['data_workers']:.0f}"
        if figures["data_workers"]:
            change += f" \N{MULTIPLICATION SIGN} {figures.get('data_worker_cores', 1):.0f} CPU"
    if "accelerated_data_workers" in figures:
        change += f", acceleratedDataWorker: {figures['accelerated_data_workers']:.0f}"
    return PlanLine(
        number=0,
        time=clock_time(decision.time),
        who=f"scheduler ({decision.policy})" if decision.policy else "scheduler",
        stage=decision.reason,
        change=change,
        message=decision.message,
        predicted="",
        measured="",
        by_person=False,
        held=False,
        current=False,
        anchor=_anchor(decision),
        seconds=decision.time,
        by_scheduler=True,
    )


def _anchor(decision: Allocation) -> str:
    digest = hashlib.sha256(decision.id.encode()).hexdigest()
    return f"decision-{digest[:12]}"


async def _decisions(brain: Brain, uid: str) -> list[Allocation]:
    """What the scheduler has decided about the job's numbers; where its pods went is elsewhere."""
    rows = await brain.cluster.allocations(since=None, before=None, limit=_MOST_PLANS, job_uid=uid)
    found = [Allocation.model_validate(json.loads(row.content)) for row in rows]
    return [one for one in found if not one.pod]


async def _input(brain: Brain, uid: str, now: float) -> InputPanel | None:
    try:
        view = input_view(await brain.profiles.state(uid))
    except NoProfileError:
        return None
    return input_panel(view, ago(now - view.time))


async def _share(brain: Brain, row: JobRow) -> SharePanel | None:
    shared = await brain.samples.share_group(row)
    return None if shared is None else share_panel(*shared)


def _plan_line(plan: Plan, measured: float | None, current: bool) -> PlanLine:
    by_person = plan.source is Source.USER
    predicted = plan.prediction
    return PlanLine(
        number=plan.id,
        time=clock_time(plan.created_seconds),
        who=(
            f"{plan.author} ({plan.policy})"
            if by_person
            else plan.algorithm.name
            if plan.algorithm
            else f"Brain, after {plan.author}"
        ),
        stage=plan.stage.value if plan.stage else "",
        change=changes({role.value: of for role, of in plan.roles.items()}),
        message=plan.message,
        predicted=(
            f"{figure(predicted.steps_per_second)} \N{PLUS-MINUS SIGN} "
            f"{figure(predicted.error_steps_per_second)}"
            if predicted
            else ""
        ),
        measured="" if measured is None else figure(measured),
        by_person=by_person,
        held=plan.held,
        current=current,
        anchor=f"plan-{plan.id}",
        seconds=plan.created_seconds,
    )


async def _points(brain: Brain, row: JobRow) -> list[Point]:
    end = row.sampled_seconds or row.last_seen_seconds
    span = end - row.registered_seconds
    if span <= 7200:
        found = await brain.samples.newest(row.uid, _MOST_POINTS)
        stride = -(-len(found) // _MOST_UNPACKED)
        return [
            Point(
                each.at_seconds,
                each.steps_per_second,
                each.world_size,
                _gpu_utilization(each.ranks) if index % stride == 0 else None,
            )
            for index, each in enumerate(found)
        ]
    sums = await brain.samples.rollups(
        row.uid,
        60 if span <= _MOST_POINTS * 60 else 600,
        start=end - _MOST_POINTS * 600,
        end=None,
        after=None,
        limit=_MOST_POINTS,
    )
    return [
        Point(
            each.start_seconds,
            each.steps_per_second,
            each.world_size,
            _of_all_roles(gpu_use.load(each.gpus)),
        )
        for each in sums
    ]


def _gpu_utilization(ranks: bytes) -> float | None:
    return _of_all_roles(gpu_use.of_roles(unpack(ranks)))


def _of_all_roles(uses: Mapping[Any, GpuUse]) -> float | None:
    """The mean utilisation of all GPUs of a job; None where none is measured."""
    return gpu_use.merged([(use, 1.0) for use in uses.values()]).utilization
