"""Several processes of the controller divide the jobs of one cluster, and go with their Leases."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.base.shards import (
    NUMBER_KEY,
    NUMBER_OBJECT,
    Share,
    lease_name,
    read_holder,
    shard_of,
)
from penstock.kube.election import LEASE_SECONDS, LOST
from tests.controller.real_cluster import (
    ROOT,
    SYSTEM,
    Cluster,
    Controllers,
    embedded_cluster,
    job,
    needs_kubectl,
    prepare,
    stop,
    until,
)
from tests.patience import patient

pytestmark = [needs_kubectl, pytest.mark.e2e, pytest.mark.slow]

JOBS = [f"divided-{number}" for number in range(6)]
"""Which shard each is in depends on the namespace."""


def divide(cluster: Cluster, number: int | str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NUMBER_OBJECT, "namespace": SYSTEM},
        "data": {NUMBER_KEY: str(number)},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(manifest), namespaced=False)


def holders(cluster: Cluster) -> dict[str, str]:
    """Who holds which Lease of the controller's."""
    found = json.loads(
        cluster.kubectl("get", "leases", "-n", SYSTEM, "-o", "json", namespaced=False)
    )
    return {
        item["metadata"]["name"]: holder
        for item in found["items"]
        if item["metadata"]["name"].startswith("penstock-controller")
        and (holder := item["spec"].get("holderIdentity"))
    }


def is_divided(cluster: Cluster, number: int) -> bool:
    held = holders(cluster)
    return len(held) == number and all(
        read_holder(holder).number == number for holder in held.values()
    )


def each_has(cluster: Cluster, count: int) -> None:
    """Wait until each job has so many workers."""

    def all_there() -> bool:
        found = cluster.all_workers()
        return all(len(found.get(name, ())) == count for name in JOBS)

    until(f"{count} workers of each job", all_there, seconds=40)


def test_every_job_has_one_owner_while_numbers_change_and_one_dies(
    cluster: Cluster, controllers: Controllers
) -> None:
    divide(cluster, 2)
    processes = [controllers.start() for _ in range(4)]
    until("two shards to be held", lambda: is_divided(cluster, 2))
    assert len(set(holders(cluster).values())) == 2
    for name in JOBS:
        cluster.create(job(name, workers={"replicas": 1}))
    each_has(cluster, 1)

    divide(cluster, 3)
    changed_at = time.monotonic()
    cluster.kubectl("scale", *(f"ej/{name}" for name in JOBS), "--replicas=2")
    each_has(cluster, 2)
    took = time.monotonic() - changed_at
    until("three shards to be held", lambda: is_divided(cluster, 3))
    print(f"all jobs were looked after {took:.1f} s after the change of the number")
    assert took < patient(20)

    divide(cluster, "many")  # nobody stops for what cannot be
    orphan = shard_of(cluster.namespace, JOBS[0], 3)
    victim = holders(cluster)[lease_name(orphan)]
    dead = next(one for one in processes if f"-{one.pid}-" in victim)
    stop(dead, signal.SIGKILL)
    divide(cluster, 3)
    killed_at = time.monotonic()
    cluster.kubectl("scale", *(f"ej/{name}" for name in JOBS), "--replicas=3")
    each_has(cluster, 3)
    assert time.monotonic() - killed_at < patient(20)
    assert victim not in holders(cluster).values()

    # Nothing was made twice, and no incarnation was spent on any change of owner.
    for name in JOBS:
        cluster.wait(f"ej/{name}", "Scaling=False")
    workers = cluster.all_workers()
    status = {one["metadata"]["name"]: one["status"] for one in cluster.find("ej")}
    for name in JOBS:
        assert workers[name] == [f"{name}-worker-{rank}-0" for rank in range(3)]
        assert "ranks" not in status[name]

    divide(cluster, 1)
    until("one shard to be held", lambda: is_divided(cluster, 1))
    [holder] = holders(cluster).values()
    assert read_holder(holder) == Share()
    for process in processes:
        if process is not dead:
            assert stop(process) == 0
    assert holders(cluster) == {}


def test_who_cannot_renew_ends_its_process_though_its_work_does_not_end(tmp_path: Path) -> None:
    """The API server stops answering, as behind a network that swallows everything."""
    program = [sys.executable, "-m", "tests.controller.shards.stubborn_holder"]
    log = tmp_path / "stubborn.log"
    with embedded_cluster(tmp_path) as (kubeconfig, server):
        cluster = Cluster(kubeconfig, tmp_path)
        prepare(cluster)
        controllers = Controllers(cluster)
        divide(cluster, 2)
        with log.open("w") as errors:
            stubborn = subprocess.Popen(
                [*program, str(controllers.kubeconfig), SYSTEM],
                stderr=errors,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                text=True,
            )
        processes = [controllers.start(), stubborn]
        try:
            for one in (log, controllers.log):
                until("both to lead", lambda one=one: "leading as" in one.read_text())
            server.send_signal(signal.SIGSTOP)
            stopped_at = time.monotonic()
            for process in processes:
                assert process.wait(patient(LEASE_SECONDS)) == LOST
            took = time.monotonic() - stopped_at
            print(f"both processes ended {took:.1f} s after the API server went silent")
        finally:
            server.send_signal(signal.SIGCONT)
            for process in processes:
                stop(process, signal.SIGKILL)
    assert "does not end: the process ends, before others take the Lease" in log.read_text()
