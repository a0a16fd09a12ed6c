"""What a share group costs: by equation 1, of those that run, and only where there is a group."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.describe import description
from penstock.cli.share_cost import DEFAULT, PriceError, cost_facts, prices_of
from penstock.cli.share_group import members
from penstock.throughput.decision.cost import Prices


def job(name: str, group: str = "", workers: int = 1, data_workers: int = 2) -> dict[str, Any]:
    spec: dict[str, Any] = {"strategy": "AllReduce", "replicaSpecs": {"worker": {}}}
    if group:
        spec["input"] = {"share": {"group": group}}
    counts = {"worker": {"ready": workers}, "dataWorker": {"ready": data_workers}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
        "status": {"replicas": counts},
    }


def test_members_are_those_of_the_group_that_have_not_ended() -> None:
    ended = job("c", "sweep")
    ended["status"]["conditions"] = [{"type": "Succeeded", "status": "True"}]
    jobs = [job("a", "sweep"), job("b", "sweep"), ended, job("d", "other"), job("e")]
    assert [one["metadata"]["name"] for one in members("sweep", jobs)] == ["a", "b"]


def test_the_papers_prices_are_divided_over_the_members() -> None:
    sharing = [job(f"job-{number}", "sweep", 1, 17 if number == 0 else 0) for number in range(4)]
    facts = cost_facts(sharing, 4.5, DEFAULT)
    assert facts["An hour"] == "$19.36: $18.00 for 4 training pods and $1.36 for 17 data workers"
    assert facts["Each of 4"] == "$4.84 an hour"
    assert facts["1,000 steps"] == "$0.2988 of this job's part, at 4.5 steps/s"
    assert "4.5 a training pod and $0.08 a data worker" in facts["Prices"]


def test_without_a_rate_or_anything_that_runs_less_is_said() -> None:
    assert "1,000 steps" not in cost_facts([job("a", "sweep")], 0.0, DEFAULT)
    assert cost_facts([], 1.0, DEFAULT) == {}
    assert cost_facts([job("a", "sweep", 0, 0)], 1.0, DEFAULT) == {}


def test_prices_are_the_users_where_he_says_them() -> None:
    assert prices_of({}) == DEFAULT
    assert prices_of({"PENSTOCK_PRICES": "2,0.5"}) == Prices(2.0, 0.5)
    for text in ("2", "two,three", "1,2,3", "-1,2"):
        with pytest.raises(PriceError, match="PENSTOCK_PRICES"):
            prices_of({"PENSTOCK_PRICES": text})


def test_the_page_of_a_job_has_them_only_where_it_shares() -> None:
    def page(cost: dict[str, str]) -> str:
        console = Console(file=io.StringIO(), width=80, record=True)
        console.print(description(job("a", "sweep"), [], [], [], None, 1.8e9, cost=cost))
        return console.export_text()

    facts = cost_facts([job("a", "sweep"), job("b", "sweep")], 0.0, DEFAULT)
    assert "Cost of the share group" in page(facts)
    assert "$9.32" in page(facts)
    assert "Cost" not in page({})
