"""``penstock nodes``: which machines are avoided and why; a person's word on it.

``avoid`` and ``clear`` each count for a time and end by themselves; ``lift`` ends them now.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output, wording
from penstock.cli.session import Session, UsageError, connected

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.wire import NodeRecord

nodes_ = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Machines that are avoided because they are slow or fail, and a person's word on it.",
)

_UNITS: Final[Mapping[str, int]] = {"m": 60, "h": 3600, "d": 86_400}
_LONGEST_DAYS: Final = 90
Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
For = Annotated[str, typer.Option("--for", help="For how long: minutes, hours or days, as 12h.")]
Why = Annotated[str, typer.Option("--message", "-m", help="Why, for those who read on.")]


@nodes_.command("list")
@connected
def list_(
    session: Session,
    avoided: Annotated[
        bool, typer.Option("--avoided", help="Only those that are avoided now.")
    ] = False,
) -> None:
    """Show what the checks of jobs, and people, say of nodes."""
    found = [one for one in session.brain.node_records() if one.avoided or not avoided]
    if not found and session.output is output.Format.TABLE:
        session.note("no node is avoided" if avoided else "nothing is known of any node")
        return
    session.show(
        {"items": [one.model_dump(mode="json") for one in found]},
        lambda: nodes_table(found, time.time()),
    )


@nodes_.command("avoid")
@connected
def avoid(session: Session, node: Node, for_: For = "24h", message: Why = "") -> None:
    """Have jobs with nodeCheck leave a node, until the time is over."""
    _override(session, node, avoid=True, for_=for_, message=message)


@nodes_.command("clear")
@connected
def clear(session: Session, node: Node, for_: For = "24h", message: Why = "") -> None:
    """Use a node whatever checks find, until the time is over."""
    _override(session, node, avoid=False, for_=for_, message=message)


@nodes_.command("lift")
@connected
def lift(session: Session, node: Node) -> None:
    """Take a person's word back: checks decide again."""
    _show(session, session.brain.lift_node_override(node))


def _override(session: Session, node: str, *, avoid: bool, for_: str, message: str) -> None:
    from penstock.wire import NodeOverrideBody

    body = NodeOverrideBody(avoid=avoid, seconds=seconds_of(for_), why=message)
    _show(session, session.brain.override_node(node, body))


def _show(session: Session, record: NodeRecord) -> None:
    session.show(record.model_dump(mode="json"), lambda: nodes_table([record], time.time()))


def seconds_of(text: str) -> float:
    """The seconds of a time such as ``12h``.

    Raises:
        UsageError: It is none, or longer than anybody may ask for.
    """
    found = re.fullmatch(r"([0-9]{1,6})([mhd])", text.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_DAYS * 86_400:
        raise UsageError(
            f"--for: {text!r}; give minutes, hours or days, as 30m, 12h or 7d, at most "
            f"{_LONGEST_DAYS}d"
        )
    return float(seconds)


def nodes_table(records: list[NodeRecord], now: float) -> Table:
    """One line for each node."""
    return output.table(
        ["NODE", "AVOIDED", ("FOR", "right"), "FOUND", ("AGO", "right"), ("TIMES", "right"), "BY"],
        [_row(one, now) for one in records],
    )


def _row(one: NodeRecord, now: float) -> list[Any]:
    left = None if one.until is None else wording.duration(max(0.0, one.until - now))
    ago = None if one.measured is None else wording.duration(max(0.0, now - one.measured))
    found = None if one.verdict is None else str(one.verdict)
    if found and one.what:
        found = f"{found}: {one.what} {one.ratio:.1f}x"
    by = f"{one.overridden_by}: {one.why}".removesuffix(": ") if one.overridden_by else None
    return [one.node, "yes" if one.avoided else "no", left, found, ago, one.times or None, by]
