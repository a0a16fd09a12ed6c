"""Relieve or move a pod that is much slower than its peers (DLRover, section 5.4).

Workers are compared by the time of their steps: an outlier by its robust z-score that is slower by
a ratio as well. It gets smaller shards, which costs nothing; one so slow that its share is hardly
worth its pod is replaced, away from its node.

Servers are compared by the time that an update takes them, for the CPU spent on it. A server that
takes long because it has more to do spends more CPU, too, and one that uses most of what it has is
hot: `hot_ps` gives it more. One that is slow and neither sits on a bad machine, and is moved to
another if the others' steps wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, median_low
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model.robust_statistics import robust_z
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    PlanReason,
    RankPlan,
    RankSample,
    RolePlan,
    Sample,
)
from penstock.brain.sizes import in_force

_FEWEST_WORKERS: Final = 3
"""Workers of which one can be told to be out of step."""
_FEWEST_RANKS: Final = 3
"""Of fewer, a ratio is all there is to go by."""
_BUSY: Final = 0.5
"""Share of its CPU above which a server that takes long is loaded, not slow."""


class StragglerParams(Params):
    """What is slow."""

    z_score: Annotated[float, Field(gt=0)] = 3.5
    """Robust standard deviations from the median beyond which a pod is an outlier."""
    slow_ratio: Annotated[float, Field(gt=1)] = 1.4
    """How many times the median time an outlier must take to count as slow."""
    replace_ratio: Annotated[float, Field(gt=1)] = 2.0
    """How many times the median time a worker must take to be replaced."""
    least_spread: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Relative spread among pods that is taken for granted."""
    enough_samples: Annotated[int, Field(ge=2)] = 3
    """Latest samples in all of which a worker must have been slow; a server: in most of them."""
    retry_seconds: Annotated[float, Field(ge=0)] = 600.0
    """For how long a pod that has been replaced is not replaced again; twice as long each time."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: StragglerParams
) -> Plan | None:
    """A slow pod relieved or moved; None where all keep up, or too few can be compared."""
    if len(history.samples) < params.enough_samples or not history.plans:
        return None
    if history.plans[-1].settled_seconds is None:
        return None
    latest = [
        sample
        for sample in history.samples[-params.enough_samples :]
        if sample.time_seconds - sample.interval_seconds >= history.plans[-1].settled_seconds
    ]
    if len(latest) < params.enough_samples:
        return None
    times = [_server_times(sample.ranks(Role.PS)) for sample in latest]
    servers = _that_set_the_pace(latest, _slow_throughout(times, params, in_each=False))
    servers = {
        rank: ratio
        for rank, ratio in servers.items()
        if _may_replace(history, Role.PS, rank, params)
    }
    if servers:
        nodes = {rank: latest[-1].ranks(Role.PS)[rank].node for rank in servers}
        return _moved(history, Role.PS, servers, nodes, PlanReason.SLOW_SERVER)
    times = [_worker_times(sample.ranks(Role.WORKER)) for sample in latest]
    workers = _slow_throughout(times, params, in_each=True)
    gone = {
        rank: ratio
        for rank, ratio in workers.items()
        if ratio >= params.replace_ratio and _may_replace(history, Role.WORKER, rank, params)
    }
    weights = {rank: round(min(1.0, 1 / ratio), 2) for rank, ratio in workers.items()}
    if gone:
        nodes = {rank: latest[-1].ranks(Role.WORKER)[rank].node for rank in gone}
        return _moved(history, Role.WORKER, gone, nodes, PlanReason.SLOW_WORKER, weights)
    if not workers or weights == _last_weights(history):
        return None
    return Plan(
        stage=Stage.ADJUST,
        algorithm="straggler",
        roles={},
        reason=PlanReason.SLOW_WORKER,
        message=f"{_named('worker', workers)}: smaller shards",
        evidence=_evidence(history, workers),
        shard_weights=weights,
    )


def _worker_times(ranks: Mapping[int, RankSample]) -> dict[int, float]:
    times = {rank: row.step_seconds for rank, row in ranks.items() if row.step_seconds}
    return times if len(times) >= _FEWEST_WORKERS else {}


def _server_times(ranks: Mapping[int, RankSample]) -> dict[int, float]:
    """Time of an update over the CPU spent on it: alike for all servers on machines alike.

    Over the CPU as a part of what the server has, where cores are what makes it fast; over the CPU
    itself, where they are a quota that an update runs into or not. Slow is what is slow by both,
    so that a server is not blamed for its size.
    """
    rows = {rank: row for rank, row in ranks.items() if row.step_seconds and row.milli_cpu > 0}
    busy = {rank: row.milli_cpu / (row.milli_cpu_limit or 1) for rank, row in rows.items()}
    # Updates queue where there is more to do: at a part rho of its time busy, a server takes
    # 1 / (1 - rho) times as long. What it has more of that than is usual is not slowness.
    usual = min(_BUSY, median_low(busy.values())) if busy else 0.0
    alone = {
        rank: (row.step_seconds or 0.0) * min(1.0, (1 - min(busy[rank], _BUSY)) / (1 - usual))
        for rank, row in rows.items()
    }
    by_share = _to_usual({rank: alone[rank] / busy[rank] for rank in rows})
    by_cpu = _to_usual({rank: alone[rank] / row.milli_cpu for rank, row in rows.items()})
    times = {rank: min(by_share[rank], by_cpu[rank]) for rank in rows}
    # A server that is loaded counts as one that keeps up.
    unhindered = median_low(times.values()) if times else 0.0
    return {
        rank: time if busy[rank] <= _BUSY else min(time, unhindered) for rank, time in times.items()
    }


def _that_set_the_pace(samples: Sequence[Sample], slow: Mapping[int, float]) -> dict[int, float]:
    """Of slow servers those that take longest of all: a step needs every server, and waits for the
    one that answers last. Beside one that is overloaded, a slow one holds nobody up.
    """
    took: dict[int, list[float]] = {}
    for sample in samples:
        for rank, row in sample.ranks(Role.PS).items():
            took.setdefault(rank, []).append(row.step_seconds or 0.0)
    longest = max((median(own) for rank, own in took.items() if rank not in slow), default=0.0)
    return {rank: ratio for rank, ratio in slow.items() if median(took[rank]) >= longest}


def _to_usual(values: Mapping[int, float]) -> dict[int, float]:
    """In multiples of the lower one of two middle values: of four servers, one may be slow and
    another of twice the size.
    """
    centre = median_low(values.values()) if values else 1.0
    return {rank: value / centre for rank, value in values.items()}


def _slow_throughout(
    rows: list[dict[int, float]], params: StragglerParams, *, in_each: bool
) -> dict[int, float]:
    """The ranks that are outliers over all rows together and slow by the ratio in each, or in most.

    With the least of their ratios to what is usual, or the median. A worker knows what its steps
    take. Of four servers in one short sample any may differ, and the work of one whose machine
    stands still now and then may fall between: what is slow stays so, what is noise does not.
    """
    if not rows:
        return {}
    ranks = set(rows[0]).intersection(*rows)
    together = _slow({rank: median(row[rank] for row in rows) for rank in ranks}, params)
    bound = params.replace_ratio if len(ranks) < _FEWEST_RANKS else params.slow_ratio
    ratios = {rank: [row[rank] / max(_centre(row), 1e-12) for row in rows] for rank in together}
    return {
        rank: min(own) if in_each else median(own)
        for rank, own in ratios.items()
        if sum(ratio > bound for ratio in own) > (len(own) - 1 if in_each else len(own) / 2)
    }


def _centre(times: Mapping[int, float]) -> float:
    """What is usual: of two, nothing says which one is out of step, so the quicker one."""
    few = len(times) < _FEWEST_RANKS
    return min(times.values()) if few else median_low(times.values())


def _slow(times: Mapping[int, float], params: StragglerParams) -> dict[int, float]:
    if len(times) < _FEWEST_RANKS:
        # Of two, nothing says which one is out of step; a large ratio does.
        if len(times) < 2:
            return {}
        (low, _), (high, rank) = sorted((value, rank) for rank, value in times.items())
        ratio = high / max(low, 1e-12)
        return {rank: ratio} if ratio > params.replace_ratio else {}
    centre = _centre(times)
    if centre <= 0:
        return {}
    scores = robust_z(list(times.values()), floor=params.least_spread * centre)
    return {
        rank: value / centre
        for (rank, value), score in zip(times.items(), scores, strict=True)
        if score > params.z_score and value > params.slow_ratio * centre
    }


def _may_replace(history: History, role: Role, rank: int, params: StragglerParams) -> bool:
    """Not soon again, and ever more rarely: one that is slow everywhere is not on a bad machine."""
    replaced = [
        applied.applied_seconds
        for applied in history.plans
        if (own := applied.roles.get(role)) is not None
        and rank in own.ranks
        and own.ranks[rank].replace
    ]
    pause = params.retry_seconds * 2.0 ** (len(replaced) - 1)
    return not replaced or history.now_seconds - max(replaced) > pause


def _last_weights(history: History) -> Mapping[int, float]:
    return history.plans[-1].shard_weights if history.plans else {}


def _moved(
    history: History,
    role: Role,
    slow: Mapping[int, float],
    nodes: Mapping[int, str],
    reason: PlanReason,
    weights: Mapping[int, float] | None = None,
) -> Plan:
    before = in_force(history).get(role, RolePlan()).ranks
    ranks = {
        rank: RankPlan(
            replace=True,
            # At most 16 nodes may be avoided: the latest count.
            avoid_nodes=tuple(
                dict.fromkeys(
                    (
                        *(before[rank].avoid_nodes if rank in before else ()),
                        *filter(None, [nodes[rank]]),
                    )
                )
            )[-16:],
        )
        for rank in slow
    }
    noun = "server" if role is Role.PS else "worker"
    return Plan(
        stage=Stage.ADJUST,
        algorithm="straggler",
        roles={role: RolePlan(ranks=ranks)},
        reason=reason,
        message=f"{_named(noun, slow)}: replaced on another node",
        evidence=_evidence(history, slow),
        shard_weights=weights or {},
    )


def _named(noun: str, slow: Mapping[int, float]) -> str:
    listed = ", ".join(f"{rank} ({ratio:.1f}x)" for rank, ratio in sorted(slow.items())[:8])
    return f"{noun} {listed} takes longer than the others"


def _evidence(history: History, slow: Mapping[int, float]) -> Evidence:
    return Evidence(
        samples=len(history.samples),
        last_sample_seconds=history.samples[-1].time_seconds,
        figures={f"rank_{rank}_ratio": ratio for rank, ratio in slow.items()},
    )


ALGORITHM: Final = Algorithm(
    name="straggler",
    version="1",
    summary="Smaller shards for a slow worker; a slow pod on a bad machine is moved.",
    stages=frozenset({Stage.OPTIMIZE, Stage.ADJUST}),
    # Servers that wait for a slow one are idle.
    triggers=frozenset(
        {Trigger.STRAGGLER, Trigger.IDLE_SERVERS, Trigger.INTERVAL, Trigger.PROPOSED}
    ),
    strategies=frozenset({Strategy.PARAMETER_SERVER, Strategy.ALL_REDUCE}),
    params=StragglerParams,
    plan=plan,
)
