"""``penstock capacity``: what other nodes would do to the jobs that run and wait, and what another
placement policy would have done to those of last week.

The Brain answers, from what the scheduler has shown it of the cluster and what it has measured of
the jobs; nothing is changed, and nothing kept. ``penstock whatif`` with the same options is the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.base.quantity import parse_bytes, parse_milli_cpu
from penstock.base.replay_hours import MOST_HOURS, WEEK_HOURS
from penstock.cli import output, replay, wording
from penstock.cli.session import Session, UsageError, connected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.wire import Between, ClusterWhatIf, ClusterWhatIfRequest, JobWhatIf

GIB: Final = 1024**3
GPU: Final = "gpu"
"""In a shape: the kind of accelerator that most nodes of the cluster have."""


@connected
def capacity_(
    session: Session,
    nodes: Annotated[
        str | None, typer.Option("--nodes", help="Nodes more (+4) or fewer (-2).")
    ] = None,
    node_shape: Annotated[
        str | None,
        typer.Option(
            "--node-shape",
            help="Of these nodes: cpu=96,memory=768Gi,gpu=8. Default: the cluster's most common.",
        ),
    ] = None,
    fail_node: Annotated[
        str | None, typer.Option("--fail-node", help="Name of a node that would be gone.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", help="A placement policy that the scheduler would have had, such as most."
        ),
    ] = None,
    hours: Annotated[
        int | None,
        typer.Option("--hours", min=1, max=MOST_HOURS, help="With --policy: how far back. 168."),
    ] = None,
) -> None:
    """Say what other nodes would do to the jobs of now, or another policy to those of last week."""
    if policy is not None:
        if (nodes, node_shape, fail_node) != (None, None, None):
            raise UsageError("--policy: is asked of past jobs and the nodes of now; ask it alone")
        _replayed(session, policy, hours)
        return
    if hours is not None:
        raise UsageError("--hours: is how far back past jobs are looked at; say --policy, too")
    asked = question(nodes, node_shape, fail_node)
    found = session.brain.cluster_what_if(asked)
    session.show(found.model_dump(mode="json", exclude_none=True), lambda: shown(found))
    if session.output is output.Format.TABLE:
        for line in found.notes:
            session.note(line)


def _replayed(session: Session, policy: str, hours: int | None) -> None:
    from pydantic import ValidationError

    from penstock.wire.replays import ClusterReplayRequest

    try:
        asked = ClusterReplayRequest(policy=policy.strip(), hours=hours or WEEK_HOURS)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise UsageError(f"--policy {policy!r}: {said}; say one such as most") from error
    found = session.brain.cluster_replay(asked)
    session.show(found.model_dump(mode="json", exclude_none=True), lambda: replay.shown(found))
    if session.output is output.Format.TABLE:
        for line in replay.notes(found):
            session.note(line)


def question(
    nodes: str | None, node_shape: str | None, fail_node: str | None
) -> ClusterWhatIfRequest:
    """What is asked of the Brain.

    Raises:
        UsageError: The options do not go together, or one cannot be read.
    """
    from pydantic import ValidationError

    from penstock.wire import ClusterWhatIfRequest, Resources

    if (nodes is None) == (fail_node is None):
        raise UsageError("say either --nodes (+4, -2), --fail-node NAME or --policy NAME")
    if nodes is None and node_shape is not None:
        raise UsageError("--node-shape: is of nodes that come or go; say --nodes, too")
    count = None if nodes is None else _count(nodes)
    amounts = None if node_shape is None else parse_shape(node_shape)
    try:
        shape = None
        if amounts is not None:
            milli_cpu, memory_bytes, accelerators = amounts
            shape = Resources(
                milli_cpu=milli_cpu, memory_bytes=memory_bytes, accelerators=accelerators
            )
        return ClusterWhatIfRequest(nodes=count, shape=shape, fail_node=fail_node)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"{field}: {first['msg']}".removeprefix(": ")) from error


def _count(nodes: str) -> int:
    try:
        count = int(nodes)
    except ValueError:
        raise UsageError(f"--nodes {nodes}: say a whole number, such as +4 or -2") from None
    if not 1 <= abs(count) <= 1000:
        raise UsageError(f"--nodes {nodes}: say 1 to 1000 more, or -1 to -1000 for fewer")
    return count


def parse_shape(text: str) -> tuple[int, int, dict[str, int]]:
    """Milli-cores, bytes and accelerators by kind of ``cpu=96,memory=768Gi,gpu=8``.

    Raises:
        UsageError: It is not of that form; the text says what is wrong.
    """
    amounts: dict[str, int] = {}
    for part in text.split(","):
        name, found, value = part.partition("=")
        name = name.strip()
        if not found or not name or name in amounts:
            rule = "say cpu, memory and accelerators once each, as cpu=96,memory=768Gi,gpu=8"
            raise UsageError(f"--node-shape {text}: {part!r}: {rule}")
        if name not in ("cpu", "memory", GPU) and "/" not in name:
            rule = "no such resource; say cpu, memory, gpu, or an accelerator such as amd.com/gpu"
            raise UsageError(f"--node-shape {text}: {name}: {rule}")
        parse = parse_milli_cpu if name == "cpu" else parse_bytes
        try:
            amounts[name] = parse(value.strip())
        except ValueError as error:
            raise UsageError(f"--node-shape {text}: {name}: {error}") from None
        if amounts[name] < 0:
            raise UsageError(f"--node-shape {text}: {name}: {value} is below 0")
    for name in ("cpu", "memory"):
        if not amounts.get(name):
            raise UsageError(f"--node-shape {text}: {name}: is missing or 0; a node has some")
    milli_cpu, memory_bytes = amounts.pop("cpu"), amounts.pop("memory")
    return milli_cpu, memory_bytes, amounts


def shown(found: ClusterWhatIf) -> RenderableType:
    """What changes, the cluster before and after, and the jobs on which it has an effect."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(output.plain(headline(found))), Text(""), _cluster(found)]
    parts.append(Text(""))
    if found.jobs:
        parts.append(_jobs(found))
    count = found.unchanged_jobs
    rest = "1 job goes on or waits" if count == 1 else f"{count} jobs go on or wait"
    parts.append(Text(f"{rest} as before", style="dim"))
    return Group(*parts)


def headline(found: ClusterWhatIf) -> str:
    """Which nodes come or go, of which shape, and what they cost."""
    if found.added:
        said = f"{len(found.added)} nodes more"
        if found.shape is not None:
            kinds = [f"{count} {kind}" for kind, count in found.shape.accelerators.items()]
            size = [
                f"{found.shape.milli_cpu / 1000:g} cores",
                wording.amount(found.shape.memory_bytes),
                *kinds,
            ]
            said += f", each with {', '.join(size)}"
    else:
        said = f"Without {', '.join(found.removed[:5])}"
        if len(found.removed) > 5:
            said += f" and {len(found.removed) - 5} more nodes"
    if found.nodes_per_hour is not None and found.currency is not None:
        change = "cost" if found.nodes_per_hour >= 0 else "save"
        said += f"; they {change} {abs(found.nodes_per_hour):,.2f} {found.currency} an hour"
    return said + "."


def _cluster(found: ClusterWhatIf) -> RenderableType:
    rows = [
        (name, words(before), words(after))
        for name, before, after, words in (
            ("nodes", found.before.nodes, found.after.nodes, _number),
            ("cores free", found.before.free_cpu_cores, found.after.free_cpu_cores, _number),
            (
                "accelerators free",
                found.before.free_accelerators,
                found.after.free_accelerators,
                _number,
            ),
            (
                "accelerators stranded",
                found.before.stranded_accelerators,
                found.after.stranded_accelerators,
                _number,
            ),
            (
                "cores stranded",
                found.before.stranded_cpu_cores,
                found.after.stranded_cpu_cores,
                _number,
            ),
            ("pods that wait", found.before.waiting_pods, found.after.waiting_pods, _number),
        )
    ]
    return output.table(["THE CLUSTER", ("BEFORE", "right"), ("AFTER", "right")], rows)


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _jobs(found: ClusterWhatIf) -> RenderableType:
    currency = found.currency
    columns: list[output.Column] = [
        ("NAMESPACE", "whole"),
        ("JOB", "whole"),
        ("EFFECT", "whole"),
        ("WORKERS", "whole"),
        "LOST",
        "STEPS/S",
        "LEFT",
    ]
    if currency is not None:
        columns += [f"{currency}/H", f"{currency} LEFT"]
    columns.append("NOTE")
    return output.table(columns, [_job(one, with_cost=currency is not None) for one in found.jobs])


def _job(one: JobWhatIf, *, with_cost: bool) -> list[str]:
    before, after = one.before, one.after
    lost = ", ".join(f"{count} {role}" for role, count in one.lost.items())
    row = [
        one.namespace,
        one.name,
        one.effect.value,
        f"{before.pods.get('worker', 0)} > {after.pods.get('worker', 0)}",
        lost,
        _change(before.steps_per_second, after.steps_per_second, wording.rate),
    ]
    if one.forecast_seconds is not None:
        row.append(f"{wording.duration(one.forecast_seconds.value)} in all")
    else:
        row.append(_change(before.remaining_seconds, after.remaining_seconds, wording.duration))
    if with_cost:
        hourly = [
            "-" if cost is None else _money(cost)
            for cost in (before.cost_per_hour, after.cost_per_hour)
        ]
        row.append(" > ".join(dict.fromkeys(hourly)))
        if one.forecast_cost is not None:
            row.append(f"{_money(one.forecast_cost.value)} in all")
        else:
            row.append(_change(before.remaining_cost, after.remaining_cost, _money))
    return [*row, one.note]


def _money(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _change(before: Between | None, after: Between | None, words: Callable[[float], str]) -> str:
    """What it was and would be, with the range of the latter; once where nothing changes."""
    if before is None and after is None:
        return ""
    if before == after:
        return _range(after, words)
    return f"{'?' if before is None else words(before.value)} > {_range(after, words)}"


def _range(one: Between | None, words: Callable[[float], str]) -> str:
    if one is None:
        return "?"
    value, low, high = words(one.value), words(one.low), words(one.high)
    return value if low == high else f"{value} ({low}..{high})"
