"""``penstock doctor``: one look, every check, and for each fault the cure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.exits import Exit
from penstock.cli.session import Session, connected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.cli.doctor.model.finding import Finding

_STYLES: Final = {
    "ok": ("✓", "green"),
    "skipped": ("-", "dim"),
    "warning": ("!", "bold magenta"),
    "fault": ("✗", "bold red"),
}


@connected
def doctor_(
    session: Session,
    strict: Annotated[
        bool, typer.Option("--strict", help="Count warnings as faults in the exit code.")
    ] = False,
) -> None:
    """Look for what is wrong with Penstock in a cluster, and name the cure."""
    from penstock.cli.doctor.examination import examine
    from penstock.cli.doctor.model.facts import gather
    from penstock.cli.doctor.model.finding import Verdict

    findings = examine(gather(session.penstock))
    session.show([asdict(each) for each in findings], lambda: report(findings))
    bad = {Verdict.FAULT, Verdict.WARNING} if strict else {Verdict.FAULT}
    if any(each.verdict in bad for each in findings):
        raise typer.Exit(Exit.FAILED)


def report(findings: list[Finding]) -> RenderableType:
    """A line for each finding, the cure below it, and the sum."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column(no_wrap=True)
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for each in findings:
        sign, style = _STYLES[each.verdict.value]
        said = Text(each.said)
        if each.cure:
            said.append(f"\n→ {each.cure}", style="bold")
        drawn.add_row(Text(f"{sign} {each.verdict.value}", style=style), each.check, said)
    count = {name: sum(each.verdict == name for each in findings) for name in _STYLES}
    total = ", ".join(
        f"{number} {word}{'s' if number != 1 and word in _STYLES else ''}"
        for word, number in (
            ("fine", count["ok"]),
            ("not looked at", count["skipped"]),
            ("warning", count["warning"]),
            ("fault", count["fault"]),
        )
        if number
    )
    return Group(drawn, Text(f"\n{total}"))
