"""The timeline of a job's plans: the Brain's, and every Scale that somebody else wrote. Pure.

The Brain keeps its plans for months, the cluster its newest Scales; a Scale that carries out a plan
of the Brain names it in an annotation and is not told twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.enums import Policy
from penstock.cli import output, wording
from penstock.client.job_calls import condition, holds
from penstock.crds import labels

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.wire import Plan

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One plan.

    Attributes:
        seconds: when it was made, since the epoch.
        changed: what it changes in what the plans before it had come to.
        result: what became of it; empty where nobody knows.
    """

    seconds: float
    source: str
    algorithm: str
    reason: str
    message: str
    roles: Json
    changed: str
    result: str
    name: str


def timeline(plans: Iterable[Plan], scales: Iterable[Json]) -> list[Entry]:
    """Every plan once, oldest first."""
    by_plan = {}
    others = []
    for scale in scales:
        number = (scale["metadata"].get("annotations") or {}).get(labels.PLAN)
        if number is not None:
            by_plan[number] = scale
        else:
            others.append(scale)
    found = [_of_plan(plan, by_plan.pop(str(plan.id), None)) for plan in plans]
    # Plans that the Brain did not tell of, because it is away, are known by their Scales.
    found += [_of_scale(scale) for scale in [*others, *by_plan.values()]]
    return _with_changes(sorted(found, key=lambda entry: (entry.seconds, entry.name)))


def _with_changes(entries: list[Entry]) -> list[Entry]:
    come_to: Json = {}
    found = []
    for entry in entries:
        found.append(_changed(entry, wording.changes(come_to, entry.roles)))
        if entry.result not in ("held", "dry run") and not entry.result.startswith("refused"):
            come_to = wording.merged(come_to, entry.roles)
    return found


def _changed(entry: Entry, changed: str) -> Entry:
    return Entry(**{**{name: getattr(entry, name) for name in _FIELDS}, "changed": changed})


_FIELDS: Final = tuple(Entry.__dataclass_fields__)


def _of_plan(plan: Plan, scale: Json | None) -> Entry:
    roles = {
        role.value: target.model_dump(by_alias=True, exclude_none=True, mode="json")
        for role, target in plan.roles.items()
    }
    result = "held" if plan.held else result_of(scale) if scale is not None else ""
    who = plan.source.value + (" pin" if plan.policy is Policy.PIN else "")
    return Entry(
        seconds=plan.created_seconds,
        source=who,
        algorithm=plan.algorithm.name if plan.algorithm else plan.author,
        reason=plan.reason,
        message=plan.message,
        roles=roles,
        changed="",
        result=result,
        name=f"plan {plan.id}",
    )


def _of_scale(scale: Json) -> Entry:
    metadata, spec = scale["metadata"], scale["spec"]
    pinned = " pin" if spec.get("policy") == Policy.PIN else ""
    return Entry(
        seconds=wording.seconds(metadata["creationTimestamp"]),
        source=str(spec["source"]) + pinned,
        algorithm=str((spec.get("algorithm") or {}).get("name") or ""),
        reason=str(spec.get("reason") or ""),
        message=str(spec.get("message") or ""),
        roles=spec["roles"],
        changed="",
        result=result_of(scale),
        name=str(metadata["name"]),
    )


def result_of(scale: Json) -> str:
    """What became of a Scale, in a word or two."""
    if holds(scale, "Failed"):
        return f"refused: {(condition(scale, 'Failed') or {}).get('reason')}"
    if scale["spec"].get("dryRun"):
        return "dry run"
    if holds(scale, "Superseded"):
        return "superseded"
    applied = condition(scale, "Applied")
    if applied is None:
        return "new"
    return "applied" if applied["status"] == "True" else str(applied["reason"])


def timeline_table(entries: list[Entry], since: float) -> Table:
    """Times count from `since`, the creation of the job."""
    rows = []
    for entry in entries:
        when = entry.seconds - since
        why = entry.reason + (f" ({entry.algorithm})" if entry.algorithm else "")
        rows.append(
            [f"+{wording.duration(when)}", entry.source, why, entry.changed, entry.result or None]
        )
    head: list[output.Column] = [
        ("TIME", "right"),
        "SOURCE",
        "REASON (BY)",
        "WHAT CHANGED",
        "RESULT",
    ]
    return output.table(head, rows)


def as_json(entries: list[Entry]) -> list[Json]:
    """The same for programs."""
    return [{name: getattr(entry, name) for name in _FIELDS} for entry in entries]
