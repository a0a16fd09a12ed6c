"""What `penstock sim week` prints: tables for people, one object for programs, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from penstock.sim.report.plot import Curve, Panel
from penstock.sim.report.tables import show
from penstock.sim.week.summary import POD_BANDS, Comparison, Row, bands, cheaper, goals, rows
from penstock.sim.week.world.assumptions import Assumptions


def as_object(jobs: int, assumed: Assumptions, found: Sequence[Comparison]) -> dict[str, Any]:
    """The whole result."""
    return {
        "jobs": jobs,
        "assumptions": [
            {"name": name, "value": value, "source": source}
            for name, value, source in assumed.rows()
        ],
        "rows": [asdict(row) for row in rows(found)],
        "weeks": [asdict(one) for one in found],
        "goals": [asdict(one) for one in goals(found)],
    }


def assumptions(assumed: Assumptions) -> None:
    """Print what is assumed."""
    show(
        "assumptions",
        ("name", "source", "value"),
        [(name, source, _number(value)) for name, value, source in assumed.rows()],
    )


def seed_line(one: Comparison) -> str:
    """One seed in a line; of two values the first is the static run's."""
    static, penstock = one.static, one.penstock
    jct = ", ".join(f"{name} {_percent(value, sign=True)}" for name, value in one.jct.items())
    cost = cheaper(one)
    return (
        f"seed {one.seed}: {one.nodes} nodes; done {static.completed} and {penstock.completed} of"
        f" {static.jobs}; median JCT {_whole(static.median_jct)} and"
        f" {_whole(penstock.median_jct)} s ({jct}); CPU {_percent(static.cpu_utilisation)} and"
        f" {_percent(penstock.cpu_utilisation)}; memory {_percent(static.memory_utilisation)} and"
        f" {_percent(penstock.memory_utilisation)}; cost of a completed job"
        f" {_percent(cost, sign=True)}"
    )


def tables(jobs: int, found: Sequence[Comparison]) -> None:
    """Print what all seeds together say."""
    seeds = ", ".join(str(one.seed) for one in found)
    show(
        f"a week of {jobs} jobs, seeds {seeds}; JCT of Penstock against static requests",
        ("figure", "published", "mean", "least", "most"),
        [_cells(row) for row in rows(found)],
    )
    show(
        "goals",
        ("name", "goal", "got", "ok"),
        [(one.name, one.goal, f"{one.got:g}", "yes" if one.ok else "no") for one in goals(found)],
    )
    reasons = sorted(
        {why for one in found for run in (one.static, one.penstock) for why in run.ended_by}
    )
    show(
        "jobs that did not complete, by reason, over all seeds",
        ("reason", "", "static", "Penstock"),
        [
            (
                why,
                "",
                str(sum(one.static.ended_by.get(why, 0) for one in found)),
                str(sum(one.penstock.ended_by.get(why, 0) for one in found)),
            )
            for why in reasons
        ],
    )
    show(
        "calls of the real parts, over all seeds (the simulated jobs use no accelerators)",
        ("part", "", "calls"),
        [(name, "", f"{sum(one.calls[name] for one in found):,.0f}") for name in found[0].calls],
    )


def sensitivity_object(
    base: Sequence[Comparison], varied: Sequence[tuple[str, Any, Sequence[Comparison]]]
) -> list[dict[str, Any]]:
    """The figures of every other world beside those of the first."""
    result = [{"assumption": "none", "value": None, **_key_figures(base)}]
    return result + [
        {"assumption": name, "value": value, **_key_figures(found)} for name, value, found in varied
    ]


def sensitivity_table(lines: Sequence[dict[str, Any]]) -> None:
    """Print the sensitivity."""
    names = [name for name in lines[0] if name not in ("assumption", "value")]
    show(
        "sensitivity: one assumption changed at a time",
        ("assumption", "value", *names),
        [
            (
                line["assumption"],
                "" if line["value"] is None else _number(line["value"]),
                *(_percent(line[name]) for name in names),
            )
            for line in lines
        ],
    )


def _key_figures(found: Sequence[Comparison]) -> dict[str, float | None]:
    short = {
        "JCT, all jobs": "JCT",
        "JCT, hot servers": "hot",
        "JCT, short of server CPU": "short",
        "completion, static": "done static",
        "completion, Penstock": "done ours",
        "CPU utilisation, static": "CPU static",
        "CPU utilisation, Penstock": "CPU ours",
        "memory utilisation, static": "mem static",
        "memory utilisation, Penstock": "mem ours",
        "cost of a completed job": "cost",
    }
    return {short[row.figure]: row.mean for row in rows(found) if row.figure in short}


def panels(found: Sequence[Comparison]) -> list[Panel]:
    """Completion by number of pods, utilisation and JCT, over the seeds."""
    seeds = [one.seed for one in found]
    completion = []
    for label in ("static", "penstock"):
        shares = []
        for band in bands():
            known = [
                share
                for one in found
                if (share := getattr(one, label).completion_by_pods[band]) is not None
            ]
            shares.append(sum(known) / len(known) if known else 0.0)
        completion.append(Curve(label, [float(low) for low, _ in POD_BANDS], shares))
    use = [
        Curve(f"CPU, {label}", seeds, [getattr(one, label).cpu_utilisation for one in found])
        for label in ("static", "penstock")
    ] + [
        Curve(f"memory, {label}", seeds, [getattr(one, label).memory_utilisation for one in found])
        for label in ("static", "penstock")
    ]
    jct = [Curve(name, seeds, [one.jct[name] or 0.0 for one in found]) for name in found[0].jct]
    return [
        Panel("completion", "pods asked for, at least", "share of jobs", completion),
        Panel("utilisation", "seed", "used over given", use),
        Panel("median JCT against static", "seed", "relative change", jct),
    ]


def _cells(row: Row) -> tuple[str, ...]:
    sign = "JCT" in row.figure or "cost" in row.figure
    published = "" if row.published is None else _percent(row.published, sign)
    return (row.figure, published, *(_percent(v, sign) for v in (row.mean, row.least, row.most)))


def _percent(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:+.0f} %" if sign else f"{100 * value:.1f} %"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
