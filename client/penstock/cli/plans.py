"""``penstock plans`` and ``propose``: what was planned, and what the Brain would do now."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.enums import Stage
from penstock.cli import output, wording
from penstock.cli.session import JobName, Session, connected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.wire import Plan, Proposal

Json = dict[str, Any]
_WATCHED: Final = (3, 4, 15, 16, 0, 7, 4)
"""Widths of the columns of `plans_table` where more rows come later; 0: what is left."""


@connected
def plans_(
    session: Session,
    job: JobName,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Then go on with new ones as they are made.")
    ] = False,
) -> None:
    """List the Brain's plans of a job, with what they predicted and what happened."""
    uid = session.job(job)["metadata"]["uid"]
    plans = list(session.brain.plans(uid))
    if watch and session.output is not output.Format.TABLE:
        for plan in plans:
            _next(session, plan)
        for plan in session.penstock.watch_plans(job, after=plans[-1].id if plans else 0):
            _next(session, plan)
        return
    if not plans and not watch and session.output is output.Format.TABLE:
        session.note(f"the Brain has made no plan for {job} yet")
        return
    if not watch:
        session.show([_json(plan) for plan in plans], lambda: plans_table(plans, time.time()))
        return
    out = session.console
    out.print(plans_table(plans, time.time(), width=out.width))
    for plan in session.penstock.watch_plans(job, after=plans[-1].id if plans else 0):
        out.print(plans_table([plan], time.time(), head=False, width=out.width))


def _next(session: Session, plan: Plan) -> None:
    sys.stdout.write(output.streamed(_json(plan), session.output))
    sys.stdout.flush()


def _json(plan: Plan) -> Json:
    return plan.model_dump(mode="json", exclude_none=True, by_alias=True)


def plans_table(
    plans: list[Plan], now: float, *, head: bool = True, width: int | None = None
) -> RenderableType:
    """One line per plan, in 80 columns; with a width, columns that later tables line up with."""
    rows = []
    for plan in plans:
        who = plan.algorithm.name if plan.algorithm else (plan.author or plan.source.value)
        rows.append(
            [
                plan.id,
                wording.age(plan.created_seconds, now),
                who,
                plan.reason,
                targets(plan),
                _speed(plan),
                "held" if plan.held else plan.policy.value if plan.policy == "Pin" else None,
            ]
        )
    table = output.table(
        [("ID", "right"), ("AGE", "right"), "BY", "REASON", "TARGETS", "STEPS/S", "NOTE"], rows
    )
    table.show_header = head
    if width is not None:
        rest = width - sum(_WATCHED) - 2 * (len(_WATCHED) - 1)
        for column, fixed in zip(table.columns, _WATCHED, strict=True):
            column.width = fixed or max(12, rest)
    return table


def targets(plan: Plan) -> str:
    """What the roles should be."""
    found = [
        f"{role.value} "
        + wording.target(target.model_dump(by_alias=True, exclude_none=True, mode="json"))
        for role, target in plan.roles.items()
    ]
    return "; ".join(found) or "as they are"


def _speed(plan: Plan) -> str:
    """What was measured, after what was predicted."""
    parts = []
    if plan.prediction is not None:
        parts.append(f"~{wording.rate(plan.prediction.steps_per_second)}")
    if plan.outcome is not None and plan.outcome.steps_per_second is not None:
        parts.append(wording.rate(plan.outcome.steps_per_second))
    return " → ".join(parts)


@connected
def propose_(
    session: Session,
    job: JobName,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="Ask only this algorithm.")
    ] = None,
    stage: Annotated[Stage | None, typer.Option(help="As if the job were at this stage.")] = None,
    cpu: Annotated[str | None, typer.Option(help="CPU limit of the job, instead.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory limit of the job, instead.")] = None,
) -> None:
    """Show what the Brain would do with a job now; changes nothing."""
    from pydantic import ValidationError

    from penstock.cli.exits import UsageError
    from penstock.wire import ProposalLimits, ProposalRequest

    try:
        limits = ProposalLimits(cpu=cpu, memory=memory)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"--{first['loc'][0]}: {first['msg']}") from error
    request = ProposalRequest(algorithm=algorithm, stage=stage, limits=limits)
    proposal = session.penstock.propose(job, request)
    session.show(
        proposal.model_dump(mode="json", exclude_none=True, by_alias=True),
        lambda: _proposal(proposal),
    )


def _proposal(proposal: Proposal) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    asked = output.table(
        ["ALGORITHM", "STAGE", "OUTCOME", ("TOOK", "right"), "DETAIL"],
        [
            [
                run.algorithm.name,
                run.stage.value,
                run.outcome.value + (" (shadow)" if run.shadow else ""),
                f"{run.duration_seconds * 1000:.0f} ms",
                run.detail,
            ]
            for run in proposal.runs
        ],
    )
    plan = proposal.plan
    if plan is None:
        return Group(Text("Nothing should change.\n"), asked)
    said = Text(f"{targets(plan)}\n", style="bold")
    said.append(output.plain(f"{plan.reason}: {plan.message}\n"), style="not bold")
    if plan.prediction is not None:
        speed, error = plan.prediction.steps_per_second, plan.prediction.error_steps_per_second
        expected = f"{wording.rate(speed)} steps/s expected, give or take {wording.rate(error)}"
        said.append(expected + "\n", style="not bold")
    return Group(said, asked)
