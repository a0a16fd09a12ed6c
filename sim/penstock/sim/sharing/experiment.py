"""Every rule on groups of every kind, and what of it is to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.sim.report.goals import Goal, at_most
from penstock.sim.sharing.rules import ALONE, MEMO, OWED, RULES, SLIDING, bound
from penstock.sim.sharing.world import Group, Outcome, World

MOST_WORKERS: Final = 4
FEW_JOBS: Final = 8
"""So many need a window of a tenth of the dataset; more are given a fifth."""
MANY_JOBS: Final = 16
MAKE_SECONDS: Final = 0.1
DELAY_SECONDS: Final = 0.02
AHEAD: Final = 4
"""Of the runs with delays: a making, a message, and tiles asked for ahead."""

KINDS: Final[dict[str, dict[str, float]]] = {
    "same speed": {},
    "within 2 %": {"speeds": 0.02},
    "within 30 %": {"speeds": 0.3},
    "joins over 3 epochs": {"joins": 3.0},
}
_GOALS: Final = {"within 30 %": (1.10, 1.15), "joins over 3 epochs": (1.05, 1.05)}
"""By the bound: of few jobs, and of many."""
_SAME_GOAL: Final = 1.0
_DELAYED_GOAL: Final = 1.01
_SLOWDOWN_GOAL: Final = 0.03


@dataclass(frozen=True, slots=True)
class Row:
    """What a group makes by each rule, in datasets an epoch.

    Attributes:
        jobs: of the group.
        speeds: of its jobs, and when they begin.
        window: share of the dataset that is held.
        alone: every job for itself.
        memo: a common order, each job from its beginning.
        owed: a common order; late ones begin at the front and owe the head.
        sliding: tf.data service's window.
        sliding_lost: share of the tiles that its jobs never see.
        bound: the least of any rule that loses nothing.
        free: ours, with one data worker.
        free_4: with four.
        delayed: with four, with messages and makings that take time.
        lost: share of tiles that jobs lost in any run of ours.
        repeated: that they had twice in an epoch.
        slowdown: of the fastest job, in the run with delays.
    """

    jobs: int
    speeds: str
    window: float
    alone: float
    memo: float
    owed: float
    sliding: float
    sliding_lost: float
    bound: float
    free: float
    free_4: float
    delayed: float
    lost: float
    repeated: float
    slowdown: float


def group_of(jobs: int, kind: str, seed: int) -> Group:
    """The group of a row.

    Raises:
        KeyError: there is no such kind.
    """
    whole = Group(jobs, seed=seed)
    window = whole.tiles // (10 if jobs <= FEW_JOBS else 5)
    of = KINDS[kind]
    return replace(whole, window=window, speeds=of.get("speeds", 0.0), joins=of.get("joins", 0.0))


def row_of(jobs: int, kind: str, seed: int) -> Row:
    """One group by every rule."""
    group = group_of(jobs, kind, seed)
    four = replace(group, workers=MOST_WORKERS)
    late = replace(
        four, make_seconds=MAKE_SECONDS, delay_seconds=DELAY_SECONDS, ahead=AHEAD
    )  # fmt: skip
    others = {name: RULES[name](group) for name in (ALONE, MEMO, OWED, SLIDING)}
    ours: list[Outcome] = [World(one).run() for one in (group, four, late)]
    return Row(
        jobs=jobs,
        speeds=kind,
        window=group.window / group.tiles,
        alone=others[ALONE].made,
        memo=round(others[MEMO].made, 4),
        owed=round(others[OWED].made, 4),
        sliding=round(others[SLIDING].made, 4),
        sliding_lost=round(others[SLIDING].lost, 4),
        bound=round(bound(group), 4),
        free=round(ours[0].made, 4),
        free_4=round(ours[1].made, 4),
        delayed=round(ours[2].made, 4),
        lost=max(one.lost for one in ours),
        repeated=max(one.repeated for one in ours),
        slowdown=round(ours[2].slowdown, 4),
    )


def rows_of(jobs: Sequence[int], seed: int) -> list[Row]:
    """Groups of so many jobs, of every kind."""
    return [row_of(number, kind, seed) for number in jobs for kind in KINDS]


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """What our rule is to reach."""
    goals = []
    for row in rows:
        name = f"{row.jobs} jobs, {row.speeds}"
        if row.speeds == "same speed":
            goals.append(at_most(f"{name}: made", _SAME_GOAL, max(row.free, row.free_4)))
            goals.append(at_most(f"{name}, with delays: made", _DELAYED_GOAL, row.delayed))
        elif row.speeds in _GOALS:
            few, many = _GOALS[row.speeds]
            if row.jobs > MANY_JOBS and row.speeds == "within 30 %":
                continue  # a fifth is too small for so many places at once; it is shown
            worst = max(row.free, row.free_4, row.delayed) / row.bound
            limit = few if row.jobs <= FEW_JOBS else many
            goals.append(at_most(f"{name}: made by the bound", limit, worst))
    goals.append(at_most("lost", 0, max(row.lost for row in rows)))
    goals.append(at_most("repeated", 0, max(row.repeated for row in rows)))
    goals.append(
        at_most("slowdown of the fastest", _SLOWDOWN_GOAL, max(row.slowdown for row in rows))
    )
    return goals
