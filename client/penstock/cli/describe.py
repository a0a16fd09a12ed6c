"""``penstock describe``: all about one job, with the timeline of its plans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import output, wording
from penstock.cli.listing import tidy
from penstock.cli.session import JobName, Session, connected
from penstock.cli.share_group import group_of, members, names_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from penstock.cli.timeline import Entry
    from penstock.wire import Allocation, InputView, Job, Plan
    from penstock.wire.samples import ShareSample

Json = dict[str, Any]
EVENTS_SHOWN: Final = 10
DECISIONS_SHOWN: Final = 10
FRESH_SECONDS: Final = 60.0
"""What was said of a share group earlier is not shown as what it does now."""
DECISIONS_READ: Final = 200
"""Most of the scheduler's decisions are about where a pod goes, which its events say."""


@connected
def describe_(session: Session, job: JobName) -> None:
    """Show a job: its state, pods, recent events, and the timeline of its plans."""
    from penstock.cli import timeline
    from penstock.client import errors, job_calls
    from penstock.client.kubernetes import resources
    from penstock.crds import labels

    document = tidy(session.job(job))
    uid = document["metadata"]["uid"]
    cluster, namespace = session.cluster, session.namespace
    scales = job_calls.scales_of(document, cluster.list(resources.SCALES, namespace))
    pods = _optional(session, resources.PODS, namespace, labels=f"{labels.JOB_UID}={uid}")
    events = _optional(session, resources.EVENTS, namespace, fields=f"involvedObject.uid={uid}")
    plans: list[Plan] = []
    known: Job | None = None
    measured: InputView | None = None
    decisions: list[Allocation] = []
    shared: ShareSample | None = None
    trouble = ""
    try:
        known = session.brain.job(uid)
        plans = list(session.brain.plans(uid))
        measured, decisions = _input(session, uid)
        shared = _shared(session, uid) if group_of(document) else None
    except errors.NotFoundError:
        trouble = "the Brain has not heard of this job yet"
    except errors.BrainError as error:
        trouble = str(error)
    entries = timeline.timeline(plans, scales)
    sharing: list[Json] = []
    cost: dict[str, str] = {}
    if group := group_of(document):
        sharing = members(group, cluster.list(resources.JOBS, namespace))
        cost = _cost(session, sharing, known)
    if trouble:
        session.note(f"plans are read from the cluster alone: {trouble}")
    session.show(
        {
            "job": document,
            "timeline": timeline.as_json(entries),
            "pods": pods,
            "events": events,
            "brain": known.model_dump(mode="json", exclude_none=True) if known else None,
            "input": measured.model_dump(mode="json") if measured else None,
            "share": {
                "group": group,
                "members": names_of(sharing),
                **(shared.model_dump(mode="json", exclude={"group", "members"}) if shared else {}),
            }
            if group
            else None,
            "cost": cost or None,
            "scheduler": [one.model_dump(mode="json") for one in decisions],
        },
        lambda: description(
            document,
            entries,
            pods,
            events,
            known,
            time.time(),
            measured,
            decisions,
            share_facts(group, names_of(sharing), shared) if group else {},
            cost,
        ),
    )


def _input(session: Session, uid: str) -> tuple[InputView | None, list[Allocation]]:
    """What is measured of the job's input, and the newest that the scheduler decided about it."""
    from itertools import islice

    from penstock.client import errors

    try:
        measured = session.brain.job_input(uid)
    except errors.NotFoundError:
        measured = None
    try:
        newest = islice(session.brain.job_allocations(uid), DECISIONS_READ)
        decided = [one for one in newest if not one.pod]
    except errors.NotFoundError:  # a Brain of the release before
        decided = []
    return measured, decided[:DECISIONS_SHOWN]


def _shared(session: Session, uid: str) -> ShareSample | None:
    """What the job's newest sample says of its share group, if there is one of the last minute."""
    newest = None
    for sample in session.brain.samples(uid, start=time.time() - FRESH_SECONDS):
        newest = sample
    return newest.share if newest is not None else None


def share_facts(group: str, members: Sequence[str], shared: ShareSample | None) -> dict[str, str]:
    """Who shares, and what comes of it."""
    facts = {"Group": group, "Members": ", ".join(members)}
    if shared is None:
        return facts
    workers = f"{shared.data_workers} of all members, {shared.own_data_workers} of this job"
    tiles = f"{shared.made:,} made, {shared.taken:,} taken"
    if shared.made and shared.taken:
        tiles += f": each made tile was taken {shared.taken / shared.made:.2f} times"
    return {
        **facts,
        "Data workers": workers,
        "Tiles": tiles,
        "Behind": f"{shared.lag_tiles:,} tiles" if shared.lag_tiles else "no tile",
    }


def _cost(session: Session, sharing: Sequence[Json], known: Job | None) -> dict[str, str]:
    """What a share group costs; empty where somebody's prices cannot be read, which is said."""
    from penstock.cli import share_cost

    try:
        prices = share_cost.prices_of()
    except share_cost.PriceError as error:
        session.note(str(error))
        return {}
    rate = known.steps_per_second if known is not None else None
    return share_cost.cost_facts(sharing, rate or 0.0, prices)


def _optional(session: Session, resource: Any, namespace: str, **choice: str) -> list[Json]:
    from penstock.client import errors

    try:
        found = session.cluster.list(resource, namespace, **choice)
    except errors.ForbiddenError:
        session.note(f"you may not list {resource.plural} in {namespace}: left out")
        return []
    for each in found:
        each["metadata"].pop("managedFields", None)
    return found


def description(
    job: Json,
    entries: list[Entry],
    pods: list[Json],
    events: list[Json],
    known: Job | None,
    now: float,
    measured: InputView | None = None,
    decisions: Sequence[Allocation] = (),
    sharing: Mapping[str, str] | None = None,
    cost: Mapping[str, str] | None = None,
) -> RenderableType:
    """Everything on one page of 80 columns."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from penstock.cli.timeline import timeline_table

    created = wording.seconds(job["metadata"]["creationTimestamp"])
    parts: list[RenderableType] = [_head(job, known, now)]

    def section(title: str, content: RenderableType) -> None:
        parts.append(Text(f"\n{title}", style="bold"))
        parts.append(Padding(content, (0, 0, 0, 2)))

    section("Conditions", _conditions(job, now))
    if entries:
        section("Plans", timeline_table(entries, created))
    if measured is not None:
        section("Input", _input_facts(measured, now))
    if told := ((job.get("status") or {}).get("input") or {}).get("partition"):
        section("Partition", _partition(told))
    if sharing:
        section("Share group", _facts(sharing))
    if cost:
        section("Cost of the share group", _facts(cost))
    if decisions:
        section("Scheduler", _decided(decisions, now))
    if pods:
        section("Pods", _pods(pods, now))
    if events:
        section("Events", _events(events, now))
    return Group(*parts)


def _objective(spec: Json, ended: bool, now: float) -> str:
    """What the job is sized for; of a deadline that is past, what is made of it."""
    objective = spec.get("objective") or ""
    deadline = spec.get("deadline")
    if not deadline:
        return objective
    past = not ended and wording.seconds(deadline) <= now
    return f"{objective} by {deadline}" + (" (past: as fast as it can be)" if past else "")


def _head(job: Json, known: Job | None, now: float) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")

    def fact(name: str, value: Any) -> None:
        if value:
            facts.add_row(
                name, value if isinstance(value, Text) else Text(output.plain(str(value)))
            )

    fact("Job", f"{metadata['name']} in {metadata['namespace']}")
    fact("State", output.state(status.get("state")))
    fact("Age", wording.age(metadata.get("creationTimestamp"), now))
    fact("Training", f"{spec.get('strategy')}, optimize {spec.get('optimize', 'Auto')}")
    fact("Objective", _objective(spec, bool(status.get("completionTime")), now))
    fact("Budget", spec.get("budget"))
    limits = spec.get("resourceLimits") or {}
    fact("Limits", ", ".join(f"{name} {amount}" for name, amount in limits.items()))
    signature = spec.get("signature") or {}
    fact("Signature", ", ".join(f"{name} {value}" for name, value in signature.items()))
    counts = status.get("replicas") or {}
    declared: Json = spec["replicaSpecs"]
    made: Json = {
        role: {}
        for role, of in counts.items()
        if role not in declared and (of.get("desired") or of.get("created"))
    }
    for role, of in (declared | made).items():
        there = counts.get(role) or {}
        fixed = of.get("replicas")
        bound = f"fixed at {fixed}" if fixed else _bounds(of)
        fact(role, f"{there.get('ready') or 0}/{there.get('desired') or 0} ready, {bound}")
    if known is not None and known.step:
        fact("Speed", f"{wording.rate(known.steps_per_second)} steps/s at step {known.step}")
    if plan := status.get("plan"):
        fact("Plan", f"{plan.get('name')} ({plan.get('source')}, {plan.get('reason')})")
    return facts


def _input_facts(measured: InputView, now: float) -> RenderableType:
    """Where the time goes, what bounds the rate, and what is decided."""
    decision, each = measured.decision, measured.unit
    age = wording.duration(max(0.0, now - measured.time))
    rate = f"{wording.rate(measured.rate)} {each}, waits {measured.stalled:.0%} of the time"
    causes = sorted(measured.causes.items(), key=lambda one: -one[1])
    limits = sorted(measured.limits.items(), key=lambda one: one[1])
    rows = {
        "Rate": f"{rate} ({age} ago)",
        "Waits for": ", ".join(f"{name} {share:.0%}" for name, share in causes),
        "Limits": ", ".join(f"{name} {wording.rate(value)}" for name, value in limits),
        "Made by": (
            f"{measured.workers} loader workers and {measured.data_workers} data workers "
            f"for each of {measured.processes} training processes"
        ),
        "Decided": decision.why,
    }
    if measured.cut:
        rows["Made of each"] = measured.cut
    if decision.cut_why:
        rows["Cut"] = decision.cut_why
    if decision.data_workers:
        rows["Promised"] = (
            f"{wording.rate(decision.promised)} {each} with {decision.data_workers} data workers "
            f"({wording.rate(decision.promised_low)} to {wording.rate(decision.promised_high)})"
        )
    return _facts(rows)


def _partition(told: Sequence[Json]) -> RenderableType:
    """What of the training step is made elsewhere, and what stays."""
    rows = {}
    for one in told:
        said = [f"{one['state']}, {one['movedPercent']} % of its steps moved"]
        if prefix := one.get("prefix"):
            share, size = one.get("prefixPercent"), one.get("crossingBytes")
            cost = "" if share is None else f"; {share} % of the step's time"
            sent = "" if size is None else f", {wording.amount(size)} sent for each"
            said.append(f"{prefix}{cost}{sent}")
        if why := one.get("why"):
            said.append(f"{one['source']}: {why}")
        rows[one["name"]] = "\n".join(said)
    return _facts(rows)


def _facts(rows: Mapping[str, str]) -> RenderableType:
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in rows.items():
        if value:
            facts.add_row(name, output.plain(value))
    return facts


def _decided(decisions: Sequence[Allocation], now: float) -> RenderableType:
    return output.table(
        [("AGO", "right"), "REASON", "MESSAGE"],
        [
            [wording.duration(max(0.0, now - one.time)), one.reason, one.message]
            for one in decisions
        ],
    )


def _bounds(role: Json) -> str:
    least, most = role.get("minReplicas"), role.get("maxReplicas")
    if most is None:
        return f"at least {least}" if least else "as planned"
    return f"{least or 0} to {most}"


def _conditions(job: Json, now: float) -> RenderableType:
    conditions = (job.get("status") or {}).get("conditions") or []
    if not conditions:
        from rich.text import Text

        return Text("none yet: is the controller up? `penstock doctor` looks")
    return output.table(
        ["TYPE", "STATUS", "REASON", ("SINCE", "right"), "MESSAGE"],
        [
            [
                each["type"],
                each["status"],
                each["reason"],
                wording.age(each["lastTransitionTime"], now),
                each.get("message"),
            ]
            for each in conditions
        ],
    )


def _pods(pods: list[Json], now: float) -> RenderableType:
    from penstock.crds import labels

    def place(pod: Json) -> tuple[str, int]:
        tags = pod["metadata"].get("labels") or {}
        rank = tags.get(labels.RANK, "0")
        return tags.get(labels.ROLE, ""), int(rank) if rank.isdigit() else 0

    rows = []
    for pod in sorted(pods, key=place):
        status = pod.get("status") or {}
        containers = status.get("containerStatuses") or []
        restarts = sum(each.get("restartCount", 0) for each in containers)
        rows.append(
            [
                pod["metadata"]["name"],
                phase_of(pod),
                restarts,
                (pod.get("spec") or {}).get("nodeName"),
                wording.age(pod["metadata"].get("creationTimestamp"), now),
            ]
        )
    head: list[output.Column] = ["NAME", "PHASE", ("RESTARTS", "right"), "NODE", ("AGE", "right")]
    return output.table(head, rows)


def phase_of(pod: Json) -> str:
    """A pod's phase, or what keeps it from the next one."""
    from penstock.crds import labels

    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    gates = [each["name"] for each in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if labels.PLACEMENT_GATE in gates:
        return "Gated"
    for each in status.get("containerStatuses") or ():
        if reason := ((each.get("state") or {}).get("waiting") or {}).get("reason"):
            return str(reason)
    return str(status.get("phase") or "Unknown")


def _events(events: list[Json], now: float) -> RenderableType:
    def last(event: Json) -> str:
        return str(
            event.get("lastTimestamp")
            or event.get("eventTime")
            or event["metadata"]["creationTimestamp"]
        )

    shown = sorted(events, key=last)[-EVENTS_SHOWN:]
    return output.table(
        [("AGO", "right"), "TYPE", "REASON", "MESSAGE"],
        [
            [
                wording.age(last(each), now),
                each.get("type"),
                each.get("reason"),
                each.get("message"),
            ]
            for each in shown
        ],
    )
