"""The controller's benchmark: what it counts, and the goals that it is held to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.controller import NAIVE, OURS, Case, calls_of, goals_of
from benchmarks.operated_cluster import OWN_AGENT, Counting
from penstock_cluster.registry import RequestFacts

REACHED: dict[str, Any] = {
    "share": 0.6,
    "api_calls_per_pod": 1.3,
    "p99_seconds": 6.0,
    "steady_p99_seconds": 2.0,
    "thirty_failures_seconds": 2.0,
    "rss_mb": 300.0,
}


def missed(case: str, **got: float) -> set[str]:
    return {goal.name for goal in goals_of([{"case": case, **REACHED, **got}]) if not goal.ok}


@pytest.mark.parametrize(
    ("case", "got", "names"),
    [
        ("alone", {}, set()),
        ("alone", {"share": 0.59}, {"share of the server's own writes, alone"}),
        ("alone", {"api_calls_per_pod": 1.31}, {"API calls per pod, alone"}),
        ("stand-ins", {"share": 0.1, "api_calls_per_pod": 2.5}, set()),
        ("stand-ins", {"api_calls_per_pod": 2.51}, {"API calls per pod, stand-ins"}),
        ("alone", {"p99_seconds": 6.1}, {"p99_seconds, alone"}),
        ("stand-ins", {"rss_mb": 301.0}, {"rss_mb, stand-ins"}),
        ("naive", {"p99_seconds": 100.0, "share": 0.1, "api_calls_per_pod": 9.0}, set()),
    ],
)
def test_goals(case: str, got: dict[str, float], names: set[str]) -> None:
    assert missed(case, **got) == names


def ask(
    counting: Counting, verb: str, resource: str, subresource: str = "", agent: str = "penstock"
) -> None:
    facts = RequestFacts(
        "", "", verb=verb, resource=resource, subresource=subresource, user_agent=agent
    )
    asyncio.run(counting.on_request(facts))


def test_requests_are_counted_by_what_they_ask_for() -> None:
    counting = Counting()
    for _ in range(3):
        ask(counting, "create", "pods")
    ask(counting, "patch", "elasticjobs", "status")
    ask(counting, "create", "pods", agent=OWN_AGENT)
    ours = Case("alone", OURS, jobs=2, workers=10, extra=1)
    assert ours.per_job == Case("naive", NAIVE, jobs=2, workers=11, extra=0).per_job
    assert calls_of(ours, counting.requests) == [
        {"case": "alone", "call": "create pods", "count": 3, "per_job": 1.5},
        {"case": "alone", "call": "patch elasticjobs/status", "count": 1, "per_job": 0.5},
    ]


def test_an_operator_is_quiet_that_looks_whether_it_may_go_on() -> None:
    counting = Counting()
    ask(counting, "get", "configmaps")
    ask(counting, "list", "leases")
    ask(counting, "patch", "leases")
    assert counting.last == 0.0
    assert counting.requests.total() == 3
    ask(counting, "create", "pods")
    assert counting.last > 0.0
