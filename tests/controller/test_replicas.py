"""Two replicas of the controller: one acts, and the other follows when it is killed."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.controller.real_cluster import (
    SYSTEM,
    Cluster,
    Controllers,
    job,
    needs_kubectl,
    stop,
    until,
)

pytestmark = [needs_kubectl, pytest.mark.e2e, pytest.mark.slow]


def holder(cluster: Cluster) -> str:
    found = cluster.kubectl(
        "get",
        "lease",
        "penstock-controller",
        "-n",
        SYSTEM,
        "-o",
        "json",
        check=False,
        namespaced=False,
    )
    if not found.startswith("{"):
        return ""
    return str(json.loads(found)["spec"].get("holderIdentity") or "")


def test_the_other_replica_acts_within_20_seconds_of_a_kill(
    cluster: Cluster, controllers: Controllers
) -> None:
    first = controllers.start()
    leader = until("a leader", lambda: holder(cluster))
    second = controllers.start()
    cluster.create(job("two", workers={"replicas": 2}))
    until("two workers", lambda: len(cluster.workers("two")) == 2)
    time.sleep(3)
    assert holder(cluster) == leader, "the second replica took a Lease that was held"

    stop(first, signal.SIGKILL)
    killed_at = time.monotonic()
    cluster.kubectl("scale", "ej/two", "--replicas=4")
    until("the other replica to act", lambda: len(cluster.workers("two")) == 4, seconds=40)
    took = time.monotonic() - killed_at
    print(f"the other replica acted {took:.1f} s after the kill")
    assert took < 20
    assert holder(cluster) not in {"", leader}

    cluster.wait("ej/two", "Scaling=False")
    assert cluster.workers("two") == [f"two-worker-{rank}-0" for rank in range(4)]
    status = cluster.get("ej", "two")["status"]
    assert "ranks" not in status, "no incarnation was spent on the change of leader"
    assert stop(second) == 0


def test_an_orderly_end_gives_the_lease_back(cluster: Cluster, controllers: Controllers) -> None:
    process = controllers.start()
    until("a leader", lambda: holder(cluster))
    begun = time.monotonic()
    assert stop(process) == 0
    assert time.monotonic() - begun < 10
    assert holder(cluster) == ""
