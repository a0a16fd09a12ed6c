"""What past jobs would have waited for with another placement policy, for people.

``penstock capacity --policy NAME`` and ``penstock whatif --policy NAME`` print it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli import output, wording

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.wire import ClusterReplay, ReplayedFigure, Spread


def shown(found: ClusterReplay) -> RenderableType:
    """The figures with both policies, and how far they differ."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(output.plain(headline(found))), Text(""), _figures(found))


def headline(found: ClusterReplay) -> str:
    """What was replayed, and whom it would have helped."""
    days = (found.end - found.start) / 86_400
    span = f"{days:.0f} days" if days >= 2 else f"{24 * days:.0f} hours"
    moved = (
        f"{found.earlier} start earlier and {found.later} later by more than a minute"
        if found.earlier or found.later
        else "none starts earlier or later by more than a minute"
    )
    return (
        f"{found.jobs} jobs of the last {span} with {found.policy} instead of "
        f"{found.policy_before}: {moved}."
    )


def notes(found: ClusterReplay) -> list[str]:
    """What is to be known beside the figures."""
    wait = wording.duration(found.recorded_mean_wait_seconds)
    recorded = f"recorded: a mean wait of {wait} until the first sample, with the start of pods"
    if found.recorded_stranded_accelerators is not None:
        recorded += f"; {found.recorded_stranded_accelerators:,.1f} accelerators stranded"
    repeated = f"ranges: of {found.repetitions} repetitions with each job up to a minute off"
    return [recorded, repeated, *found.notes]


def _figures(found: ClusterReplay) -> RenderableType:
    rows = [
        _row(name, figure, words)
        for name, figure, words in (
            ("mean wait", found.mean_wait_seconds, wording.duration),
            ("median wait", found.median_wait_seconds, wording.duration),
            ("9 of 10 wait less than", found.most_wait_seconds, wording.duration),
            ("jobs that wait", found.waited_jobs, _number),
            ("mean completion", found.mean_completion_seconds, wording.duration),
            ("median completion", found.median_completion_seconds, wording.duration),
            ("accelerators stranded", found.stranded_accelerators, _number),
            ("accelerators free", found.free_accelerators, _number),
        )
    ]
    columns: list[output.Column] = [
        "FIGURE",
        (found.policy_before.upper(), "right"),
        (found.policy.upper(), "right"),
        ("CHANGE", "right"),
        ("FROM", "right"),
        ("TO", "right"),
    ]
    return output.table(columns, rows)


def _row(name: str, figure: ReplayedFigure, words: Callable[[float], str]) -> list[str]:
    change: Spread = figure.change
    return [
        name,
        words(figure.before.value),
        words(figure.after.value),
        _signed(change.value, words),
        _signed(change.low, words),
        _signed(change.high, words),
    ]


def _signed(value: float, words: Callable[[float], str]) -> str:
    text = words(abs(value))
    if text == words(0.0):
        return text
    return f"{'-' if value < 0 else '+'}{text}"


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")
